"""LlamaIndex's chat stores, as targets: everturn check examples.peers.llamaindex_peers:sql."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore


def memory(_where: Path) -> Any:
    """SimpleChatStore, in memory."""
    return SimpleChatStore()


memory.processes = False  # type: ignore[attr-defined]  # in memory by nature


def sql(where: Path) -> Any:
    """SQLAlchemyChatStore over SQLite."""
    return SQLAlchemyChatStore("messages", async_database_uri=f"sqlite+aiosqlite:///{where}/llamaindex.db")
