"""Under LlamaIndex: the store of its `Memory` with `add_messages` for a turn, and a `BaseChatStore`, which has one call
for each message."""

import os
from collections.abc import Sequence
from pathlib import Path

from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from benchmarks.contenders.under import Awaiting, Blocking, asyncpg, opened, opened_async
from everturn.adapters.llama_index import EverturnChatStore, EverturnDBChatStore
from everturn.bench.contenders import Place
from everturn.bench.workload import Message


class _OfMemory(Awaiting):
    """A store that a `Memory` takes."""

    chat: AsyncDBChatStore

    def made(self, turn: Sequence[Message]) -> list[ChatMessage]:
        """LlamaIndex's messages."""
        return _made(turn)

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn."""
        await self.chat.add_messages(session, turn)

    async def read(self, session: str) -> Sequence[object]:
        """All messages that are in the queue."""
        return await self.chat.get_messages(session)


class Ours(_OfMemory):
    """`EverturnDBChatStore`, over the asynchronous face."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        super().__init__()
        self._store = self.runner.run(opened_async(place))
        self.chat = EverturnDBChatStore(self._store)

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._store.close())
        self.runner.close()


class SQLAlchemy(_OfMemory):
    """`SQLAlchemyChatStore`, which a `Memory` has by default: aiosqlite, or asyncpg."""

    def __init__(self, place: Place) -> None:
        """Remember where it goes; it connects when it is used."""
        super().__init__()
        uri = f"sqlite+aiosqlite:///{place / 'llama.db'}" if isinstance(place, Path) else asyncpg(place)
        self.chat = self._chat = SQLAlchemyChatStore("llama_index_memory", async_database_uri=uri)

    def close(self) -> None:
        """See Contender.close."""
        engine = self._chat._async_engine
        if engine is not None:
            self.runner.run(engine.dispose())
        self.runner.close()


class _Messages(Blocking):
    """A store with a call for each message."""

    chat: BaseChatStore

    def made(self, turn: Sequence[Message]) -> list[ChatMessage]:
        """LlamaIndex's messages."""
        return _made(turn)

    def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn, message by message: the interface has nothing else."""
        for message in turn:
            self.chat.add_message(session, message)

    def read(self, session: str) -> Sequence[object]:
        """All messages."""
        return self.chat.get_messages(session)


class OursByMessage(_Messages):
    """`EverturnChatStore`, over the blocking face."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self._store = opened(place)
        self.chat = EverturnChatStore(self._store)

    def close(self) -> None:
        """See Contender.close."""
        self._store.close()


class RedisByMessage(_Messages):
    """`RedisChatStore`, of llama-index-storage-chat-store-redis. Its keys are the server's, and others may be there."""

    def __init__(self, url: str) -> None:
        """Connect."""
        from llama_index.storage.chat_store.redis import RedisChatStore

        self.chat = RedisChatStore(redis_url=url)

    def session(self, session_id: str) -> str:
        """The key."""
        return f"{os.getpid()}:{session_id}"

    def close(self) -> None:
        """See Contender.close."""


class RedisAwaited(Awaiting):
    """The same, awaited. A `Memory` does not take it: it has neither a turn nor a queue."""

    def __init__(self, url: str) -> None:
        """Connect."""
        from llama_index.storage.chat_store.redis import RedisChatStore

        super().__init__()
        self._chat = RedisChatStore(redis_url=url)

    def session(self, session_id: str) -> str:
        """The key."""
        return f"{os.getpid()}:{session_id}"

    def made(self, turn: Sequence[Message]) -> list[ChatMessage]:
        """LlamaIndex's messages."""
        return _made(turn)

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn, message by message."""
        for message in turn:
            await self._chat.async_add_message(session, message)

    async def read(self, session: str) -> Sequence[object]:
        """All messages."""
        found: Sequence[object] = await self._chat.aget_messages(session)
        return found

    def close(self) -> None:
        """See Contender.close."""
        self.runner.run(self._chat._aredis_client.aclose())
        self.runner.close()


def _made(turn: Sequence[Message]) -> list[ChatMessage]:
    return [ChatMessage(message["content"], role=message["role"]) for message in turn]
