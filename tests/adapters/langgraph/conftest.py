"""Stores for the tests here: one on each backend, blocking or async, empty and alone in its namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import everturn
from everturn import AsyncMemoryStore, MemoryStore
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.stores import WatchedStore
from tests.store.places import Servers

BACKENDS = ("sqlite", "valkey", "postgres")


class StoreUnderTest:
    """A place on one backend. Every store opened here is on the same data."""

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


class WatchedSaver(EverturnSaver):
    """A saver whose calls of the store go through `watch`, which a test overrides."""

    def __init__(self, store: MemoryStore | AsyncMemoryStore, **options: Any) -> None:
        super().__init__(store, **options)
        self._runner.store = WatchedStore(self._runner.store, self.watch)  # type: ignore[assignment]
        self._use(self._codec)

    async def watch(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError


@pytest.fixture
def make_backend(tmp_path: Path, servers: Servers) -> Callable[[str], StoreUnderTest]:
    def make(name: str) -> StoreUnderTest:
        urls = {
            "sqlite": lambda: f"sqlite:///{tmp_path}/memory.db",
            "valkey": lambda: servers.valkey.url,
            "postgres": lambda: servers.postgres.url,
        }
        return StoreUnderTest(urls[name]())

    return make


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, make_backend: Callable[[str], StoreUnderTest]) -> StoreUnderTest:
    """Every backend in turn."""
    return make_backend(request.param)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """One backend, for what is the same on all."""
    with everturn.open("sqlite://") as store:
        yield store
