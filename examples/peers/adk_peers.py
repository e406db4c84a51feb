"""Google ADK's session services, as targets: everturn check examples.peers.adk_peers:sqlite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from google.adk.sessions import DatabaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from sqlalchemy import make_url


def sqlite(where: Path) -> Any:
    """SqliteSessionService."""
    return SqliteSessionService(str(where / "adk.db"))


def database(where: Path) -> Any:
    """DatabaseSessionService over SQLite."""
    return DatabaseSessionService(f"sqlite+aiosqlite:///{where}/adk.db")


def postgres(where: Path, postgres_url: str) -> Any:
    """DatabaseSessionService over PostgreSQL, in a schema of the place's own."""
    with psycopg.connect(postgres_url, autocommit=True) as plain:
        plain.execute("SELECT pg_advisory_lock(1)")  # two processes at once would both create it
        plain.execute(f"CREATE SCHEMA IF NOT EXISTS {where.name}")
    url = make_url(postgres_url).set(drivername="postgresql+psycopg")
    return DatabaseSessionService(db_url=url, connect_args={"options": f"-c search_path={where.name}"})


def memory(_where: Path) -> Any:
    """InMemorySessionService."""
    return InMemorySessionService()


memory.processes = False  # type: ignore[attr-defined]  # in memory by nature
