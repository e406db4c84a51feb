"""Stores for the tests here: one on each engine, blocking or async, empty and alone in its namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

import everturn
from everturn import AsyncMemoryStore, MemoryStore
from tests.store.places import Servers

ENGINES = ("sqlite", "valkey", "postgres")


class Engine:
    """A place on one engine. Every store opened here is on the same data."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._namespace = uuid4().hex[:12]

    @property
    def own_url(self) -> str:
        """The same place, for a process of its own."""
        return f"{self.url}{'&' if '?' in self.url else '?'}namespace={self._namespace}"

    @contextmanager
    def open(self) -> Iterator[MemoryStore]:
        with everturn.open(self.url, namespace=self._namespace) as store:
            yield store

    @asynccontextmanager
    async def open_async(self) -> AsyncIterator[AsyncMemoryStore]:
        async with await everturn.open_async(self.url, namespace=self._namespace) as store:
            yield store


@pytest.fixture
def make_engine(tmp_path: Path, servers: Servers) -> Callable[[str], Engine]:
    def make(name: str) -> Engine:
        urls = {
            "sqlite": lambda: f"sqlite:///{tmp_path}/memory.db",
            "valkey": lambda: servers.valkey.url,
            "postgres": lambda: servers.postgres.url,
        }
        return Engine(urls[name]())

    return make


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, make_engine: Callable[[str], Engine]) -> Engine:
    """Every engine in turn."""
    return make_engine(request.param)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """One engine, for what is the same on all."""
    with everturn.open("sqlite://") as store:
        yield store
