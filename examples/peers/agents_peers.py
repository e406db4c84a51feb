"""OpenAI Agents' sessions, as targets: everturn check examples.peers.agents_peers:sqlite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import (
    AdvancedSQLiteSession,
    AsyncSQLiteSession,
    EncryptedSession,
    RedisSession,
    SQLAlchemySession,
)

DAY = 24 * 60 * 60


def sqlite(where: Path, session_id: str) -> Any:
    """SQLiteSession."""
    return SQLiteSession(session_id, where / "agents.db")


def awaited_sqlite(where: Path, session_id: str) -> Any:
    """AsyncSQLiteSession, over aiosqlite."""
    return AsyncSQLiteSession(session_id, where / "agents.db")


def advanced_sqlite(where: Path, session_id: str) -> Any:
    """AdvancedSQLiteSession, with branches and usage."""
    return AdvancedSQLiteSession(session_id=session_id, db_path=where / "agents.db", create_tables=True)


def sqlalchemy(where: Path, session_id: str) -> Any:
    """SQLAlchemySession over SQLite."""
    return SQLAlchemySession.from_url(session_id, url=f"sqlite+aiosqlite:///{where}/agents.db", create_tables=True)


def encrypted(where: Path, session_id: str, ttl: float | None = None) -> Any:
    """EncryptedSession over SQLiteSession."""
    stored = SQLiteSession(session_id, where / "agents.db")
    key = "the same key in every process, for a test"
    return EncryptedSession(session_id, stored, encryption_key=key, ttl=DAY if ttl is None else int(ttl))


def redis(where: Path, session_id: str, redis_url: str, ttl: float | None = None) -> Any:
    """RedisSession."""
    return RedisSession.from_url(
        session_id, url=redis_url, key_prefix=where.name, ttl=None if ttl is None else int(ttl)
    )
