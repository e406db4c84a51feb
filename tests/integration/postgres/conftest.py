"""A real PostgreSQL for a module of tests, and a fresh schema in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from everturn.testing.servers import PostgresServer, postgres_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(max_connections=200) as server:
        yield server


@pytest.fixture
def schema() -> str:
    return f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest.fixture
def beside(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside the store's own."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection
