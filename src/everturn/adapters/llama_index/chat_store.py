"""EverturnChatStore and EverturnDBChatStore: LlamaIndex's two chat store interfaces over sessions.

They are two classes because LlamaIndex gives blocking methods in one and awaited methods in the other the same names.
"""

from __future__ import annotations

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from everturn import AsyncMemoryStore, MemoryStore
from everturn.adapters._shared.sync_async import CallRunner
from everturn.adapters.llama_index.sessions import ChatSessions, encoded


class EverturnChatStore(BaseChatStore):
    """Chat store for `ChatMemoryBuffer` and anything else that takes a `BaseChatStore`.

    A key is the id of an everturn session. Over a `MemoryStore` both the blocking and the async methods work; over an
    `AsyncMemoryStore` the async ones.
    """

    _runner: CallRunner = PrivateAttr()
    _sessions: ChatSessions = PrivateAttr()
    _blocking: MemoryStore | None = PrivateAttr()

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        super().__init__()
        self._runner = CallRunner(store, "EverturnChatStore")
        self._sessions = ChatSessions(self._runner.store)
        self._blocking = store if isinstance(store, MemoryStore) else None

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name for the class."""
        return "EverturnChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages in one undoable step. Raises InvalidInput if one would not come back equal."""
        self._runner.run_blocking(self._sessions.set(key, messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages in order, whichever framework wrote them. Empty if there is no such key."""
        return self._runner.run_blocking(self._sessions.read(key))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message. Raises InvalidInput if it would not come back equal."""
        # A hot path: pydantic looks up a private attribute everywhere else first, so take it directly.
        own = self.__pydantic_private__
        store: MemoryStore = own["_blocking"] or own["_runner"].blocking
        store.add_messages(key, encoded([message]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase the session for good and return its messages; None if there is no such key.

        A message appended at the same moment is erased too, and may be missing from those returned.
        """
        return self._runner.run_blocking(self._sessions.remove_all(key))

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at an index for good, in one step, and return it; None if there is none."""
        return self._runner.run_blocking(self._sessions.remove_at(key, idx))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove and return the last message; None if there is none. Concurrent callers each get a different one."""
        return self._runner.run_blocking(self._sessions.remove_at(key, -1))

    def get_keys(self) -> list[str]:
        """Return the ids of all sessions."""
        return self._runner.run_blocking(self._sessions.keys())

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages, as `set_messages` does."""
        await self._runner.run_async(self._sessions.set(key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages, as `get_messages` does."""
        return await self._runner.run_async(self._sessions.read(key))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message, as `add_message` does."""
        await self._runner.run_async(self._sessions.add(key, [message]))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase the session, as `delete_messages` does."""
        return await self._runner.run_async(self._sessions.remove_all(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove a message, as `delete_message` does."""
        return await self._runner.run_async(self._sessions.remove_at(key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message, as `delete_last_message` does."""
        return await self._runner.run_async(self._sessions.remove_at(key, -1))

    async def aget_keys(self) -> list[str]:
        """Return the ids of all sessions, as `get_keys` does."""
        return await self._runner.run_async(self._sessions.keys())


class EverturnDBChatStore(AsyncDBChatStore):
    """Chat store for `Memory`: `Memory.from_defaults(session_id=key, chat_store=EverturnDBChatStore(store))`.

    It shows the same sessions as `EverturnChatStore`. A message that `Memory` takes out of its queue is archived: it
    stays in the session, where people and other adapters see it. Over a `MemoryStore` all of `Memory` works; over an
    `AsyncMemoryStore` its async methods, in the store's own event loop.
    """

    _runner: CallRunner = PrivateAttr()
    _sessions: ChatSessions = PrivateAttr()

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        super().__init__()
        self._runner = CallRunner(store, "EverturnDBChatStore")
        self._sessions = ChatSessions(self._runner.store)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name for the class."""
        return "EverturnDBChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages with a status (None: all) in order; of these at most `limit`, from index `offset` on."""
        found = await self._runner.run_async(self._sessions.read_status(key, status))
        return found[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Count the messages with a status (None: all)."""
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append a message. Raises InvalidInput if it would not come back equal."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append the messages as one turn: all or none. An empty list changes nothing."""
        await self._runner.run_async(self._sessions.add(key, messages, status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages, of either status, in one undoable step."""
        await self._runner.run_async(self._sessions.set(key, messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at an index, counted over both statuses, for good; return it, or None if there is none."""
        return await self._runner.run_async(self._sessions.remove_at(key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Erase the session for good; or, given a status, remove the messages with it in one step."""
        if status is None:
            await self._runner.run_async(self._sessions.remove_all(key))
        else:
            await self._runner.run_async(self._sessions.remove_status(key, status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest `n` active messages for good, in one step, and return them."""
        return await self._runner.run_async(self._sessions.remove_oldest(key, n))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest `n` active messages in one step, and return them."""
        return await self._runner.run_async(self._sessions.archive_oldest(key, n))

    async def get_keys(self) -> list[str]:
        """Return the ids of all sessions."""
        return await self._runner.run_async(self._sessions.keys())
