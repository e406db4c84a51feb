"""LlamaIndex's chat stores, as targets: everturn check examples.peers.llamaindex_peers:sql."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from llama_index.storage.chat_store.redis import RedisChatStore


def memory(_where: Path) -> Any:
    """SimpleChatStore, in memory."""
    return SimpleChatStore()


memory.processes = False  # type: ignore[attr-defined]  # in memory by nature


def sql(where: Path) -> Any:
    """SQLAlchemyChatStore over SQLite."""
    return SQLAlchemyChatStore("messages", async_database_uri=f"sqlite+aiosqlite:///{where}/llamaindex.db")


def redis(where: Path, redis_url: str, ttl: float | None = None) -> Any:
    """RedisChatStore. Its keys are names of sessions, without a prefix: each place gets a database of the server."""
    number = int(where.name[1:].partition("_")[0]) % 16
    return RedisChatStore(f"{redis_url}/{number}", ttl=None if ttl is None else int(ttl))
