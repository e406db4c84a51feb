"""LangChain: `EverturnChatMessageHistory(session_id, store)`, a chat history that cannot lose a message.

How a message is stored is said in `messages.py`; here it is LangChain's interface, on both faces of a store.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from everturn import AsyncMemoryStore, ChatMessage, InvalidInput, MemoryStore, Unsupported
from everturn.adapters._shared.sync_async import CallRunner
from everturn.adapters._shared.tool_results import results_after_calls
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.langchain.values import LangChainCodec

_codec = LangChainCodec()


class EverturnChatMessageHistory(BaseChatMessageHistory):
    """The history of one session, as LangChain's messages: a message is a message of the everturn session.

    Over a `MemoryStore` both the blocking and the async methods work; over an `AsyncMemoryStore` the async ones. It
    holds no messages itself: every reading is of what is stored now, and objects for one session may be many.
    """

    def __init__(self, session_id: str, store: MemoryStore | AsyncMemoryStore) -> None:
        super().__init__()
        self.session_id = session_id
        self._runner = CallRunner(store, "EverturnChatMessageHistory")

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own histories make it a property
        """The messages in order, whoever wrote them; none if there is no such session.

        Where another framework left several calls and then their results, each result stands behind its call.
        """
        return self._runner.run_blocking(self._get())

    async def aget_messages(self) -> list[BaseMessage]:
        """See `messages`."""
        return await self._runner.run_async(self._get())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append the messages as one turn: all or none, and never between another's. No messages change nothing.

        Raises InvalidInput, naming the message and the place in it, for one that would not come back as it is.
        """
        self._runner.run_blocking(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """See `add_messages`."""
        await self._runner.run_async(self._add(messages))

    def clear(self) -> None:
        """Empty the history. `store.undo` takes it back; `store.erase` is what removes it."""
        self._runner.run_blocking(self._clear())

    async def aclear(self) -> None:
        """See `clear`."""
        await self._runner.run_async(self._clear())

    # --- both faces --------------------------------------------------------------------------------------------------

    async def _get(self) -> list[BaseMessage]:
        history = await self._runner.store.get_history(self.session_id)
        return [self._decoded(entry) for entry in results_after_calls(history)]

    async def _add(self, messages: Sequence[BaseMessage]) -> None:
        if turn := [_encoded(message, index) for index, message in enumerate(messages)]:
            await self._runner.store.add_messages(self.session_id, turn)

    async def _clear(self) -> None:
        await self._runner.store.clear(self.session_id)

    def _decoded(self, entry: ChatMessage) -> BaseMessage:
        try:
            return _codec.decode_message(entry)
        except RoundTripError as exc:
            raise Unsupported(f"message {entry.seq} of session {self.session_id!r} cannot be read: {exc}") from exc


def _encoded(message: BaseMessage, index: int) -> ChatMessage:
    if not isinstance(message, BaseMessage):
        raise InvalidInput(f"is a LangChain message, not {type(message).__name__}", path=f"messages[{index}]")
    try:
        return _codec.encode_message(message)
    except RoundTripError as exc:
        place = f".{exc.path}" if exc.path else ""
        raise InvalidInput(str(exc), path=f"messages[{index}]{place}") from exc
