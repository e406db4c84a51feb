"""LlamaIndex: `EverturnChatStore(store)`, and `EverturnDBChatStore(store)` for its `Memory`.

How a message is stored is said in `messages.py`; here are LlamaIndex's two interfaces, which have the same names
for methods that block and methods that are awaited, and so are two classes.
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
    """A chat store over an everturn store: a key is the session of its name, a message is one of its messages.

    For `ChatMemoryBuffer` and whatever else takes a `BaseChatStore`. Over a `MemoryStore` both the blocking and the
    async methods work; over an `AsyncMemoryStore` the async ones.
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
        """LlamaIndex's name for the class."""
        return "EverturnChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """In one undoable step, make these the messages. Raises InvalidInput for one that would not come back."""
        self._runner.run_blocking(self._sessions.set(key, messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """The messages in order, whoever wrote them; none if there is no such key."""
        return self._runner.run_blocking(self._sessions.read(key))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message. Raises InvalidInput for one that would not come back as it is."""
        # For every message, so without detours: pydantic looks for a private attribute in all other places first.
        own = self.__pydantic_private__
        store: MemoryStore = own["_blocking"] or own["_runner"].blocking
        store.add_messages(key, encoded([message]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase the session, for good, and return its messages; None if there is no such key.

        What is appended at the same moment is erased as well, and may not be among them.
        """
        return self._runner.run_blocking(self._sessions.remove_all(key))

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at this index, for good, in one step, and return it; None if there is none."""
        return self._runner.run_blocking(self._sessions.remove_at(key, idx))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove exactly the last message, once, whoever else is at it, and return it; None if there is none."""
        return self._runner.run_blocking(self._sessions.remove_at(key, -1))

    def get_keys(self) -> list[str]:
        """The ids of all sessions."""
        return self._runner.run_blocking(self._sessions.keys())

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """See `set_messages`."""
        await self._runner.run_async(self._sessions.set(key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """See `get_messages`."""
        return await self._runner.run_async(self._sessions.read(key))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """See `add_message`."""
        await self._runner.run_async(self._sessions.add(key, [message]))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """See `delete_messages`."""
        return await self._runner.run_async(self._sessions.remove_all(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """See `delete_message`."""
        return await self._runner.run_async(self._sessions.remove_at(key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """See `delete_last_message`."""
        return await self._runner.run_async(self._sessions.remove_at(key, -1))

    async def aget_keys(self) -> list[str]:
        """See `get_keys`."""
        return await self._runner.run_async(self._sessions.keys())


class EverturnDBChatStore(AsyncDBChatStore):
    """The store of LlamaIndex's `Memory`: `Memory.from_defaults(session_id=key, chat_store=EverturnDBChatStore(s))`.

    The same sessions and messages as those of `EverturnChatStore`. A message that `Memory` takes out of its queue is
    archived: it stays in the session, where people and other adapters see it. Over a `MemoryStore` all of `Memory`
    works; over an `AsyncMemoryStore` its async methods, in the store's own event loop.
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
        """The messages with this status (None: all) in order; of these `limit`, from the `offset`th on."""
        found = await self._runner.run_async(self._sessions.read_status(key, status))
        return found[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """How many there are with this status (None: all)."""
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append a message. Raises InvalidInput for one that would not come back as it is."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append the messages as one turn: all or none. No messages change nothing."""
        await self._runner.run_async(self._sessions.add(key, messages, status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """In one undoable step, make these the messages, instead of those with any status."""
        await self._runner.run_async(self._sessions.set(key, messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at this index, counted over any status, for good; return it. None if there is none."""
        return await self._runner.run_async(self._sessions.remove_at(key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Erase the session, for good; or in one step remove those with one status."""
        if status is None:
            await self._runner.run_async(self._sessions.remove_all(key))
        else:
            await self._runner.run_async(self._sessions.remove_status(key, status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest `n` active messages, for good, in one step, and return them."""
        return await self._runner.run_async(self._sessions.remove_oldest(key, n))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest `n` active messages in one step, and return them."""
        return await self._runner.run_async(self._sessions.archive_oldest(key, n))

    async def get_keys(self) -> list[str]:
        """The ids of all sessions."""
        return await self._runner.run_async(self._sessions.keys())
