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


def persisted(where: Path) -> Any:
    """SimpleChatStore, loaded from a file and persisted to it at each change, as its documentation does."""
    path = str(where / "chat_store.json")

    class Persisted(SimpleChatStore):
        def add_message(self, key: str, message: Any, idx: int | None = None) -> None:
            super().add_message(key, message, idx)
            self.persist(path)

        def set_messages(self, key: str, messages: list[Any]) -> None:
            super().set_messages(key, messages)
            self.persist(path)

        def delete_messages(self, key: str) -> Any:
            removed = super().delete_messages(key)
            self.persist(path)
            return removed

    return Persisted(**SimpleChatStore.from_persist_path(path).model_dump())


def sql(where: Path) -> Any:
    """SQLAlchemyChatStore over SQLite."""
    return SQLAlchemyChatStore("messages", async_database_uri=f"sqlite+aiosqlite:///{where}/llamaindex.db")
