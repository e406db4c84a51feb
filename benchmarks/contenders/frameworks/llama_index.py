"""Under LlamaIndex: the store of its `Memory` with `add_messages` for a turn, and a `BaseChatStore`, which has one call
for each message."""

import os
from collections.abc import Sequence
from pathlib import Path

from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from benchmarks.contenders.frameworks import asyncpg
from everturn.adapters.llama_index import EverturnChatStore, EverturnDBChatStore
from everturn.bench.contenders import Place
from everturn.bench.contenders.contender import AsyncContender, BlockingContender
from everturn.bench.contenders.everturn_store import open_async_store, open_store
from everturn.bench.workload import PlainMessage


class _MemoryStore(AsyncContender):
    """A store that a `Memory` takes."""

    chat: AsyncDBChatStore

    def made(self, turn: Sequence[PlainMessage]) -> list[ChatMessage]:
        return _made(turn)

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        await self.chat.add_messages(session, turn)

    async def read(self, session: str) -> Sequence[object]:
        """The messages that are in the queue."""
        return await self.chat.get_messages(session)


class EverturnUnderLlamaIndex(_MemoryStore):
    """`EverturnDBChatStore`, over `AsyncMemoryStore`."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(open_async_store(place))
        self.chat = EverturnDBChatStore(self._store)

    def close(self) -> None:
        """Close the store."""
        self.runner.run(self._store.close())
        self.runner.close()


class LlamaIndexSQLAlchemyStore(_MemoryStore):
    """`SQLAlchemyChatStore`, which a `Memory` has by default: aiosqlite, or asyncpg."""

    def __init__(self, place: Place) -> None:
        """Remember where it goes; it connects when it is used."""
        super().__init__()
        uri = f"sqlite+aiosqlite:///{place / 'llama.db'}" if isinstance(place, Path) else asyncpg(place)
        self.chat = self._chat = SQLAlchemyChatStore("llama_index_memory", async_database_uri=uri)

    def close(self) -> None:
        """Close the store."""
        engine = self._chat._async_engine
        if engine is not None:
            self.runner.run(engine.dispose())
        self.runner.close()


class _ByMessage(BlockingContender):
    """A store with a call for each message."""

    chat: BaseChatStore

    def made(self, turn: Sequence[PlainMessage]) -> list[ChatMessage]:
        return _made(turn)

    def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn, message by message: the interface has nothing else."""
        for message in turn:
            self.chat.add_message(session, message)

    def read(self, session: str) -> Sequence[object]:
        return self.chat.get_messages(session)


class EverturnByMessage(_ByMessage):
    """`EverturnChatStore`, over `MemoryStore`."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self._store = open_store(place)
        self.chat = EverturnChatStore(self._store)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class LlamaIndexRedisStore(_ByMessage):
    """`RedisChatStore`, of llama-index-storage-chat-store-redis. Its keys are the server's, and others may be there."""

    def __init__(self, url: str) -> None:
        """Connect."""
        from llama_index.storage.chat_store.redis import RedisChatStore

        self.chat = RedisChatStore(redis_url=url)

    def session(self, session_id: str) -> str:
        """The key."""
        return f"{os.getpid()}:{session_id}"

    def close(self) -> None:
        """Nothing to close: its client closes with the process."""


class LlamaIndexRedisStoreAsync(AsyncContender):
    """`RedisChatStore`, awaited. A `Memory` does not take it: it has neither a turn nor a queue."""

    def __init__(self, url: str) -> None:
        """Connect."""
        from llama_index.storage.chat_store.redis import RedisChatStore

        super().__init__()
        self._chat = RedisChatStore(redis_url=url)

    def session(self, session_id: str) -> str:
        """The key."""
        return f"{os.getpid()}:{session_id}"

    def made(self, turn: Sequence[PlainMessage]) -> list[ChatMessage]:
        return _made(turn)

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn, message by message."""
        for message in turn:
            await self._chat.async_add_message(session, message)

    async def read(self, session: str) -> Sequence[object]:
        found: Sequence[object] = await self._chat.aget_messages(session)
        return found

    def close(self) -> None:
        """Close the store."""
        self.runner.run(self._chat._aredis_client.aclose())
        self.runner.close()


def _made(turn: Sequence[PlainMessage]) -> list[ChatMessage]:
    return [ChatMessage(message["content"], role=message["role"]) for message in turn]
