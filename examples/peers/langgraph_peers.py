"""LangGraph's checkpointers, as targets: everturn check examples.peers.langgraph_peers:sqlite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row


@contextmanager
def sqlite(where: Path) -> Iterator[Any]:
    """SqliteSaver."""
    with SqliteSaver.from_conn_string(str(where / "langgraph.db")) as saver:
        yield saver


@asynccontextmanager
async def awaited_sqlite(where: Path) -> AsyncIterator[Any]:
    """AsyncSqliteSaver."""
    async with AsyncSqliteSaver.from_conn_string(str(where / "langgraph.db")) as saver:
        yield saver


@contextmanager
def postgres(where: Path, postgres_url: str) -> Iterator[Any]:
    """PostgresSaver, in a schema of the place's own."""
    with psycopg.connect(postgres_url, autocommit=True) as plain:
        plain.execute("SELECT pg_advisory_lock(1)")  # setup() must not run twice at once
        plain.execute(f"CREATE SCHEMA IF NOT EXISTS {where.name}")
        with _saver(where, postgres_url) as saver:
            saver.setup()
    with _saver(where, postgres_url) as saver:
        yield saver


@contextmanager
def _saver(where: Path, postgres_url: str) -> Iterator[Any]:
    options = f"-c search_path={where.name}"
    with psycopg.connect(
        postgres_url, autocommit=True, prepare_threshold=0, row_factory=dict_row, options=options
    ) as connection:
        yield PostgresSaver(connection)


def memory(_where: Path) -> Any:
    """InMemorySaver."""
    return InMemorySaver()


memory.processes = False  # type: ignore[attr-defined]  # in memory by nature
