"""OpenAI Agents' sessions, as targets: everturn check examples.peers.agents_peers:sqlite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import RedisSession


def sqlite(where: Path, session_id: str) -> Any:
    """SQLiteSession."""
    return SQLiteSession(session_id, where / "agents.db")


def redis(where: Path, session_id: str, redis_url: str, ttl: float | None = None) -> Any:
    """RedisSession."""
    return RedisSession.from_url(
        session_id, url=redis_url, key_prefix=where.name, ttl=None if ttl is None else int(ttl)
    )
