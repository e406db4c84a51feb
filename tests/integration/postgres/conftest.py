"""A real PostgreSQL for all tests here, emptied after each module, and a fresh schema in it for each test.

Of a module marked `one_schema` all tests have the same, emptied after each: they are about rows, and to make a schema
takes 0.2 s of the processor. Whoever changed more of it than rows keeps it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

import everturn
from everturn.testing.servers import PostgresServer, postgres_server

BESIDE = "a test"  # the name of our own connections
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_schema: tests about rows, which take turns with one schema")


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


class SharedSchema:
    """A schema with everturn's tables that one test after another gets, each time empty."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._name = ""
        self._made = ""
        self._tables: list[str] = []

    @contextmanager
    def lent(self) -> Iterator[str]:
        if not self._name:
            self._name = f"test_{next(_numbers)}"
            everturn.open(self._server.url, schema=self._name, timeout=20).close()
            with self._connected() as connection:
                self._made = self._definition(connection)
                tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self._name,))
                self._tables = [f"{self._name}.{table}" for (table,) in tables.fetchall() if table != "schema_versions"]
        yield self._name
        with self._connected() as connection:
            if self._is_alone(connection) and self._definition(connection) == self._made:
                # One transaction, so that it is synced once.
                connection.execute("; ".join(f"DELETE FROM {table}" for table in self._tables))  # type: ignore[arg-type]
            else:
                self._name = ""

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.url, autocommit=True, application_name=BESIDE)

    def _is_alone(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether no client is left, which might still write. The server takes a moment to see one go."""
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> %s"
        )
        deadline = time.monotonic() + 0.5
        while connection.execute(others, (BESIDE,)).fetchone() != (0,):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def _definition(self, connection: psycopg.Connection[Any]) -> str:
        """A digest of the catalog's rows about the schema: an ALTER or a CREATE OR REPLACE makes new ones."""
        rows = connection.execute(
            """
            WITH tables AS (
                SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %(name)s)
            SELECT oid, xmin::text FROM pg_namespace WHERE nspname = %(name)s
            UNION ALL SELECT p.oid, p.xmin::text FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
             WHERE nspname = %(name)s
            UNION ALL SELECT oid, xmin::text FROM pg_class WHERE oid IN (SELECT oid FROM tables)
            UNION ALL SELECT attrelid, xmin::text FROM pg_attribute WHERE attrelid IN (SELECT oid FROM tables)
            UNION ALL SELECT oid, xmin::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM tables)
            UNION ALL SELECT oid, xmin::text FROM pg_constraint WHERE conrelid IN (SELECT oid FROM tables)
            ORDER BY 1, 2
            """,
            {"name": self._name},
        )
        return str(rows.fetchall())


@pytest.fixture(scope="module")
def shared_schema(server: PostgresServer) -> SharedSchema:
    return SharedSchema(server)


@pytest.fixture
def schema(request: pytest.FixtureRequest, shared_schema: SharedSchema) -> Iterator[str]:
    """The name of a schema: one that is not there yet, or, in a module marked `one_schema`, one with empty tables."""
    if request.node.get_closest_marker("one_schema"):
        with shared_schema.lent() as name:
            yield name
    else:
        yield f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest.fixture
def beside(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside the store's own."""
    with psycopg.connect(server.url, autocommit=True, application_name=BESIDE) as connection:
        yield connection
