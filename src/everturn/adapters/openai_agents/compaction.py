"""EverturnCompactionSession: a session of the OpenAI Agents SDK that folds its oldest items behind a summary."""

from __future__ import annotations

from typing import Any

from agents.memory import SessionSettings

from everturn import AsyncMemoryStore, ChatMessage, InvalidInput, MemoryStore, SessionNotFound
from everturn.adapters._shared.openai_items import all_items
from everturn.adapters.openai_agents.session import EverturnSession


class EverturnCompactionSession(EverturnSession):
    """A session that compacts itself: `run_compaction`, which the SDK calls after a run, is a fold of the store.

    Once more than `fold_at` messages are in view, the oldest are hidden behind the text that
    `summarize(messages, earlier)` returns, until `max_messages` are left. Items that are added while it works stay, any
    number of instances and processes may compact at once, and `undo` brings everything back. `get_items` returns the
    summary first, as a system message. `pop_item` and `clear_session` are those of EverturnSession.
    """

    def __init__(
        self,
        session_id: str,
        store: MemoryStore | AsyncMemoryStore,
        *,
        summarize: Any,
        max_messages: int = 20,
        fold_at: int = 60,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        super().__init__(session_id, store, session_settings=session_settings)
        if not callable(summarize):
            raise InvalidInput(f"is a function, not {type(summarize).__name__}", path="summarize")
        self._summarize = summarize
        self._max_messages = max_messages
        self._fold_at = max(fold_at, max_messages)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the summary of hidden items, if there is one, and the items in order; with a limit, the n latest."""
        limit = self._limit(limit)
        if limit is not None:
            items = await super().get_items(limit)
            if len(items) >= limit:
                return items
        # Summary and items by one read: a fold between two would show the items that it hides beside its summary.
        context = await self._store.get_context(self.session_id, heal=False)
        items = all_items([_rendered(message) for message in context.messages])
        return items if limit is None else items[-limit:]

    async def run_compaction(self, args: Any = None) -> None:
        """Fold, if the session is long enough or `force` is set. Where another instance folds already, do nothing."""
        try:
            messages = (await self._store.info(self.session_id)).messages
        except SessionNotFound:
            return
        if messages > self._fold_at or (args or {}).get("force"):
            await self._store.fold(self.session_id, self._summarize, max_messages=self._max_messages)


def _rendered(message: ChatMessage) -> ChatMessage:
    """Return a summary as a system message without marks, and any other message as it is. Summaries have no seq."""
    return message if message.seq is not None else ChatMessage("system", message.text)
