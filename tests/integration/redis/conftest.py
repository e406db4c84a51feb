"""Servers for the tests here: one for all that only need a server, and those that break theirs start their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

import everturn
from everturn.testing.servers import ValkeyServer, valkey_server


@pytest.fixture(scope="session")
def running() -> Iterator[ValkeyServer]:
    with valkey_server(appendonly=True) as server:
        yield server


@pytest.fixture
def server(running: ValkeyServer) -> ValkeyServer:
    """An empty server with settings nobody need be warned of."""
    running.command("FLUSHALL")
    return running


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    """A client that looks at what is stored, and damages it, behind the store's back."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def store(server: ValkeyServer) -> Iterator[everturn.MemoryStore]:
    with everturn.open(server.url) as store:
        yield store
