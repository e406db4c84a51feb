"""EverturnChatMessageHistory: LangChain's chat history interface over a session. messages.py converts the messages."""

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
    """History of one session as LangChain's messages. Each is one message of the everturn session.

    Over a `MemoryStore` both the blocking and the async methods work; over an `AsyncMemoryStore` the async ones. The
    object holds no messages: every read is of the store, and many objects may share one session.
    """

    def __init__(self, session_id: str, store: MemoryStore | AsyncMemoryStore) -> None:
        super().__init__()
        self.session_id = session_id
        self._runner = CallRunner(store, "EverturnChatMessageHistory")

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own histories make it a property
        """Messages in order, whichever framework wrote them. Empty if there is no such session.

        Where another framework stored several tool calls and then their results, each result comes right after its
        call.
        """
        return self._runner.run_blocking(self._get())

    async def aget_messages(self) -> list[BaseMessage]:
        """Return the messages, as `messages` does."""
        return await self._runner.run_async(self._get())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append the messages as one turn: all or none, and never between another's. An empty list changes nothing.

        Raises InvalidInput, with the path of the value, for a message that would not come back equal.
        """
        self._runner.run_blocking(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append the messages as one turn, as `add_messages` does."""
        await self._runner.run_async(self._add(messages))

    def clear(self) -> None:
        """Empty the history. `store.undo` takes it back; `store.erase` removes it for good."""
        self._runner.run_blocking(self._clear())

    async def aclear(self) -> None:
        """Empty the history, as `clear` does."""
        await self._runner.run_async(self._clear())

    # --- coroutines for the blocking and the async methods -----------------------------------------------------------

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
