"""EverturnSession: the Session interface of the OpenAI Agents SDK. _shared/openai_items.py converts the items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from agents.memory import SessionABC, SessionSettings

from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    InvalidInput,
    KeyReused,
    MemoryStore,
    Receipt,
    SessionState,
    Snapshot,
    VersionConflict,
)
from everturn.adapters._shared.openai_items import Item, all_items, identity, to_items, to_message
from everturn.adapters._shared.seq_references import refuse_referenced
from everturn.adapters._shared.sync_async import awaited_in_thread
from everturn.model import MESSAGE, Entry

NEAR = 32  # entries read first, to find the latest few messages


class EverturnSession(SessionABC):
    """A session of the OpenAI Agents SDK in an everturn store. An item is one message of the everturn session.

    `add_items` is one atomic turn. It is keyed by the ids of its items, if they have any: sent again, they are stored
    once. Items without ids are never taken for the same, even if equal. `pop_item` removes exactly the last item, once,
    also when others pop or append at the same time. `undo` takes back a pop, a clear or a rollback.
    """

    def __init__(
        self,
        session_id: str,
        store: MemoryStore | AsyncMemoryStore,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._store = awaited_in_thread(store)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items in order; with a limit, exactly the n latest."""
        limit = self._limit(limit)
        if limit is None:
            messages: Sequence[ChatMessage] = await self._store.get_history(self.session_id)
        elif limit <= 0:
            return []
        else:
            messages = (await self._latest(limit))[0].messages
        items = all_items(messages)
        return items if limit is None else items[-limit:]

    def _limit(self, limit: int | None) -> int | None:
        """Return the limit of a read: the caller's, else that of the settings; None if there is none."""
        return limit if limit is not None else _settings(self.session_settings).limit

    async def add_items(self, items: list[Any]) -> None:
        """Append the items as one turn: all or none. Raises InvalidInput, with a path, if one cannot be stored."""
        if not items:
            return
        turn = [to_message(_checked(item, index)) for index, item in enumerate(items)]
        key = _key(items)
        try:
            receipt = await self._store.add_messages(self.session_id, turn, key=key)
            while receipt.replayed and not await self._shows(receipt):
                # It was stored before and is hidden by a clear or a trim, so this is no retry: store the items again.
                key = f"{key}:{receipt.version}"
                receipt = await self._store.add_messages(self.session_id, turn, key=key)
        except KeyReused:
            # These ids were stored before with other content: an edited item is stored as a new one.
            await self._store.add_messages(self.session_id, turn)

    async def _shows(self, receipt: Receipt) -> bool:
        """Whether the present history has any entry of this turn."""
        first, last = receipt.seqs[0], receipt.seqs[-1]
        return bool(await self._store.get_history(self.session_id, after=first - 1, before=last + 1))

    async def pop_item(self) -> Any | None:
        """Remove the last item and return it; None if there is none. Concurrent callers each get a different item.

        Everything else stays: other items of the same message, tool calls, summaries and records. Raises Unsupported
        if a later record of another framework refers to the item's message.
        """
        while True:
            state, _ = await self._latest(2, kind=None)
            place = next((at for at in range(len(state.entries) - 1, -1, -1) if _is_message(state.entries[at])), None)
            if place is None:
                return None
            *rest, popped = to_items(cast("ChatMessage", state.entries[place]))
            behind = state.entries[place + 1 :]
            refuse_referenced(self.session_id, behind, "the last item")
            # The store cannot take an entry out of the middle, so the entries after it are written again.
            earlier = _seq_before(state, place)
            entries = [*map(to_message, rest), *behind]
            try:
                await self._store.replace(self.session_id, entries, after=earlier, expected_version=state)
            except VersionConflict:
                continue  # another writer was first: read again
            return popped

    async def clear_session(self) -> None:
        """Empty the history. `undo` takes it back; `store.erase` removes it for good."""
        await self._store.clear(self.session_id)

    async def _latest(self, number: int, *, kind: str | None = MESSAGE) -> tuple[SessionState, bool]:
        """Return a state with at least the `number` latest messages, and whether it has the whole session.

        The state is of one version. With `kind=None` it has entries of all kinds.
        """
        width = max(NEAR, 2 * number)
        state = await self._store.state(self.session_id, kind=MESSAGE, after=2**53)
        while True:
            after = max(state.last_seq - width, 0)
            state = await self._store.state(self.session_id, kind=kind, after=after)
            if len(state.messages) >= number or after == 0:
                return state, after == 0
            width *= 4

    # --- compaction: the SDK looks for these two private methods by name (docs/adapters/openai-agents.md) ------------

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace the whole history in one undoable step. Without this method the SDK clears, then adds."""
        if type(self) is not EverturnSession:
            return False  # a subclass may store items differently
        turn = [to_message(_checked(item, index)) for index, item in enumerate(items)]
        await self._store.replace(self.session_id, turn, after=0)
        return True

    async def _get_compaction_snapshot(self, limit: int) -> Any:
        """Return the `limit` latest items, and a function that replaces some unless the session has changed."""
        if type(self) is not EverturnSession:
            return None
        try:
            from agents.memory.session import _CompactionSnapshot
        except ImportError:
            return None  # an earlier SDK
        state, is_all = await self._latest(limit + 1, kind=None)
        # For each item: the index of its entry, and its index within the entry.
        places = [
            (place, within)
            for place, entry in enumerate(state.entries)
            if isinstance(entry, ChatMessage)
            for within in range(len(to_items(entry)))
        ]
        items = all_items([entry for entry in state.entries if isinstance(entry, ChatMessage)])
        shown = places[-limit:]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            if not shown[start:]:
                return False
            place, within = shown[start]
            first, *behind = state.entries[place:]
            stay = [entry for entry in behind if not isinstance(entry, ChatMessage)]
            refuse_referenced(self.session_id, stay, "an item")
            earlier = to_items(cast("ChatMessage", first))[:within]
            turn = [to_message(_checked(item, index)) for index, item in enumerate([*earlier, *output])]
            after = _seq_before(state, place)
            try:
                await self._store.replace(self.session_id, [*turn, *stay], after=after, expected_version=state)
            except VersionConflict:
                return False  # items were added while the model summarised: keep them
            return True

        return _CompactionSnapshot(items[-limit:], is_all and len(shown) == len(places), replace_suffix)

    # --- beyond the SDK's interface ----------------------------------------------------------------------------------

    async def save_snapshot(self, label: str | None = None) -> Snapshot:
        """Save a snapshot to roll back to, in O(1)."""
        return await self._store.save_snapshot(self.session_id, label)

    async def list_snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the session, as `store.list_snapshots` does."""
        return await self._store.list_snapshots(self.session_id)

    async def rollback_to_snapshot(self, snapshot: Snapshot | str) -> Receipt:
        """Roll back to a snapshot. `undo` takes it back."""
        return await self._store.rollback_to_snapshot(self.session_id, snapshot)

    async def undo(self) -> Receipt:
        """Take back the latest rollback, pop or clear."""
        return await self._store.undo(self.session_id)


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    """Return the settings. The SDK accepts a dict as well."""
    return SessionSettings(**given) if isinstance(given, dict) else given or SessionSettings()


def _is_message(entry: Entry) -> bool:
    return isinstance(entry, ChatMessage)


def _seq_before(state: SessionState, place: int) -> int:
    """Seq of the entry before a place in the state's entries; 0 before the first."""
    return (state.entries[place - 1].seq or 0) if place else 0


def _checked(item: Any, index: int) -> Item:
    if not isinstance(item, dict):
        raise InvalidInput(f"is a dict, not {type(item).__name__}", path=f"items[{index}]")
    return item


def _key(items: Sequence[Item]) -> str | None:
    """Make an idempotency key from the ids of the items, never from content; None if none has an id."""
    ids = [identity(item) for item in items]
    if not any(ids):
        return None
    import hashlib

    told = "\0".join(one or "" for one in ids)
    return f"openai:{hashlib.sha256(told.encode()).hexdigest()}"
