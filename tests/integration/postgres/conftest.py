"""A real PostgreSQL for all tests here, emptied after each module, and a fresh schema in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from everturn.testing.servers import PostgresServer, postgres_server

_numbers = itertools.count()


def _empty(server: PostgresServer) -> None:
    """Drop everything that tests made: connections, databases, schemas, tables and roles."""
    with psycopg.connect(server.url, autocommit=True) as connection:

        def names(query: str) -> list[sql.Identifier]:
            return [sql.Identifier(name) for (name,) in connection.execute(query).fetchall()]  # type: ignore[call-overload]

        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        for name in names("SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"):
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        for name in names(r"SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(name))
        connection.execute("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
        connection.execute("GRANT USAGE ON SCHEMA public TO public")
        for name in names("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_|^postgres$'"):
            connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(name))


@pytest.fixture(scope="session")
def running() -> Iterator[PostgresServer]:
    with postgres_server(max_connections=200) as server:
        yield server


@pytest.fixture(scope="module")
def server(running: PostgresServer) -> Iterator[PostgresServer]:
    """An empty server. To start one takes a second of the processor, to empty one a hundredth of it."""
    yield running
    _empty(running)


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
