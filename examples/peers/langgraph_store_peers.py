"""LangGraph's item stores, as targets: everturn check examples.peers.langgraph_store_peers:sqlite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from psycopg.rows import dict_row

SWEEP = 0.01  # minutes: rows that expired are deleted by a thread of the store


@contextmanager
def sqlite(where: Path, ttl: float | None = None) -> Iterator[Any]:
    """SqliteStore, with its sweeper if there is a ttl."""
    with SqliteStore.from_conn_string(str(where / "store.db"), ttl=_config(ttl)) as store:
        store.setup()
        if ttl is not None:
            store.start_ttl_sweeper(SWEEP)
        yield store
        store.stop_ttl_sweeper()


@asynccontextmanager
async def awaited_sqlite(where: Path, ttl: float | None = None) -> AsyncIterator[Any]:
    """AsyncSqliteStore, with its sweeper if there is a ttl."""
    async with AsyncSqliteStore.from_conn_string(str(where / "store.db"), ttl=_config(ttl)) as store:
        await store.setup()
        if ttl is not None:
            await store.start_ttl_sweeper(SWEEP)
        yield store
        await store.stop_ttl_sweeper()


@contextmanager
def postgres(where: Path, postgres_url: str, ttl: float | None = None) -> Iterator[Any]:
    """PostgresStore, in a schema of the place's own, with its sweeper if there is a ttl."""
    with psycopg.connect(postgres_url, autocommit=True) as plain:
        plain.execute("SELECT pg_advisory_lock(1)")  # setup() must not run twice at once
        plain.execute(f"CREATE SCHEMA IF NOT EXISTS {where.name}")
        with _connection(where, postgres_url) as connection:
            PostgresStore(connection).setup()
    with _connection(where, postgres_url) as connection:
        store = PostgresStore(connection, ttl=_config(ttl))
        if ttl is not None:
            store.start_ttl_sweeper(SWEEP)
        yield store
        store.stop_ttl_sweeper()


@contextmanager
def _connection(where: Path, postgres_url: str) -> Iterator[Any]:
    options = f"-c search_path={where.name}"
    with psycopg.connect(
        postgres_url, autocommit=True, prepare_threshold=0, row_factory=dict_row, options=options
    ) as connection:
        yield connection


def memory(_where: Path) -> Any:
    """InMemoryStore."""
    return InMemoryStore()


memory.processes = False  # type: ignore[attr-defined]  # in memory by nature


def _config(ttl: float | None) -> Any:
    return None if ttl is None else {"default_ttl": ttl / 60, "refresh_on_read": False}
