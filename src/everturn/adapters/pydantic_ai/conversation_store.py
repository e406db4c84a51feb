"""EverturnConversationStore: Pydantic AI's conversation store interface. messages.py converts the messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    InvalidInput,
    MemoryStore,
    Receipt,
    Record,
    SessionState,
    Unsupported,
    VersionConflict,
)
from everturn.adapters._shared.sync_async import CallRunner
from everturn.adapters.pydantic_ai.messages import StoredEntry, to_entries, to_stored
from everturn.adapters.pydantic_ai.once_per_call import effects_of
from everturn.model import Entry

RECORD = "pydantic_ai.record"  # kind of the record that each save ends with: Pydantic AI's data beside the messages
BRANCH = "branch "  # label of the snapshot of a history that was left; the id of its last entry follows
NEAR = 32  # entries read first, to find the latest record
KNOWN = 10_000  # entries whose conversation is cached

_records = TypeAdapter(ConversationRecord)


class ConversationEnd(msgspec.Struct, frozen=True):
    """The end of a session, back to its latest record."""

    state: SessionState
    record: ConversationRecord | None


class EverturnConversationStore(ConversationStore):
    """Pydantic AI's conversations in an everturn store. A conversation is the session of its id.

    A save is one atomic turn: the new messages and the record. If anyone has saved, branched or deleted since the
    conversation was loaded, it raises `ConversationConflict` and writes nothing. After a branch, the history that was
    left stays in a snapshot of the session. A fork is a copy of its own. `delete` erases. The caller closes the store.
    """

    def __init__(self, store: MemoryStore | AsyncMemoryStore) -> None:
        self._runner = CallRunner(store, "EverturnConversationStore")
        self._run, self._store = self._runner.run_async, self._runner.store
        self._where: dict[str, str] = {}  # the conversation of an entry, for entries seen lately
        self._ends: dict[str, int] = {}  # the last known seq of a conversation

    # --- Pydantic AI's interface -------------------------------------------------------------------------------------

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation as it is now; None if there is none."""
        return (await self._run(self._read_end(conversation_id))).record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records of all saved conversations, or of those with a scope; latest saved first."""
        return await self._run(self._list(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one step. On a ConversationConflict nothing is written."""
        await self._run(self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation and its messages physically. On a ConversationConflict nothing is changed.

        Forks of it are copies, and stay.
        """
        await self._run(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry by its id. Raises KeyError if there is none.

        Fast for conversations that this object has read or written lately. Others are searched in the whole store.
        """
        return (await self.read_history(entry_id))[-1]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to this one in order, or the last `limit` of them. Raises KeyError if there is none."""
        if head_id is None or limit == 0:
            return []
        stored = await self._run(self._history(head_id, limit))
        return [one.entry for one in (stored if limit is None else stored[-limit:])]

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read_end(self, conversation_id: str) -> ConversationEnd:
        """Read the end of a session, back to its latest record, or all of it if it has none."""
        width = NEAR
        after = max(self._ends.get(conversation_id, 0) - 1, 0)
        while True:
            state = await self._store.state(conversation_id, after=after)
            records = [entry for entry in state.records if entry.kind == RECORD]
            if records or after == 0:
                break
            after = max(state.last_seq - width, 0)
            width *= 8
        record = _record_of(state, records[-1] if records else None)
        self._ends[conversation_id] = state.last_seq
        if record is not None:
            self._remember(conversation_id, record.head_id, *record.branches)
        return ConversationEnd(state, record)

    async def _history(self, head_id: str, limit: int | None) -> list[StoredEntry]:
        """Return the entries up to one, at least the last `limit`. Raises KeyError if there is no such entry."""
        where = self._where.get(head_id)
        if where is not None:
            try:
                return await self._path(where, head_id, limit)
            except KeyError:
                pass  # it may be in another conversation: forks are copies
        async for conversation_id in self._holding(head_id):
            try:
                path = await self._path(conversation_id, head_id, limit)
            except KeyError:
                continue
            self._remember(conversation_id, head_id)
            return path
        raise KeyError(head_id)

    async def _path(self, conversation_id: str, head_id: str, limit: int | None) -> list[StoredEntry]:
        if limit is not None and (width := 8 * limit) < self._ends.get(conversation_id, 0):
            state = await self._store.state(conversation_id, after=self._ends[conversation_id] - width)
            path = _up_to(head_id, _without_parent(to_stored(state.entries)))
            if path is not None and len(path) >= limit:
                return path
        state = await self._store.state(conversation_id)
        path = _up_to(head_id, to_stored(state.entries))
        if path is not None:
            return path
        snapshots = await self._store.list_snapshots(conversation_id)
        left = [snapshot for snapshot in snapshots if (snapshot.label or "").startswith(BRANCH)]
        for snapshot in sorted(left, key=lambda one: (one.label == f"{BRANCH}{head_id}", one.version), reverse=True):
            state = await self._store.state(conversation_id, at=snapshot)
            path = _up_to(head_id, to_stored(state.entries))
            if path is not None:
                return path
        raise KeyError(head_id)

    async def _holding(self, entry_id: str) -> AsyncIterator[str]:
        """Yield conversations that may have an entry: those that mention its id, then all others."""
        seen: set[str] = set()
        try:
            for match in await self._store.find(entry_id):
                if match.session_id not in seen:
                    seen.add(match.session_id)
                    yield match.session_id
        except Unsupported:
            pass
        async for session_id in self._sessions():
            if session_id not in seen:
                yield session_id

    async def _sessions(self) -> AsyncIterator[str]:
        page = None
        while True:
            listed = await self._store.sessions(limit=500, page=page)
            for session in listed.sessions:
                yield session.session_id
            page = listed.next
            if page is None:
                return

    async def _list(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        found: dict[str, ConversationRecord] = {}
        async for session_id in self._sessions():
            end = await self._read_end(session_id)
            if end.record is None or not any(entry.kind == RECORD for entry in end.state.records):
                continue  # a session that Pydantic AI did not save
            if scope is None or end.record.scope == scope:
                found[session_id] = end.record
        records = sorted(found.values(), key=lambda record: record.updated_at, reverse=True)
        return records if limit is None else records[:limit]

    def _remember(self, conversation_id: str, *entries: str | None) -> None:
        for entry in entries:
            if entry is not None:
                self._where.pop(entry, None)
                self._where[entry] = conversation_id
        while len(self._where) > KNOWN:
            del self._where[next(iter(self._where))]
        while len(self._ends) > KNOWN:
            del self._ends[next(iter(self._ends))]

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected: str | None
    ) -> None:
        conversation_id = record.conversation_id
        base = new_entries[0].parent_id if new_entries else record.head_id
        turn = [entry for one in new_entries for entry in to_entries(one)]
        while True:
            end = await self._read_end(conversation_id)
            if (end.record.revision if end.record is not None else None) != expected:
                raise ConversationConflict(conversation_id)
            try:
                receipt = await self._write_at(end, base, turn, record)
            except VersionConflict:
                continue  # a snapshot or another save came first: the revision tells which
            except KeyError:
                raise ConversationConflict(conversation_id) from None  # the entry that it continues is gone
            self._ends[conversation_id] = receipt.seqs[-1]
            self._remember(conversation_id, record.head_id, *record.branches)
            return

    async def _write_at(
        self, end: ConversationEnd, base: str | None, turn: list[Entry], record: ConversationRecord
    ) -> Receipt:
        """Write a save that continues the entry `base`, in this conversation or another.

        Raises VersionConflict if the session has changed since `end` was read, KeyError if `base` is gone.
        """
        session_id = record.conversation_id
        receipt: Receipt
        if end.record is None:
            if end.state.version:  # a deletion that was not finished
                await self._erase(session_id, end.state)
            copied = await self._history(base, None) if base is not None else []
            entries = [entry for one in copied for entry in to_entries(one.entry)]
            return await self._store.append(session_id, [*entries, *turn, _kept(record)], expected_version=0)
        if base == end.record.head_id:
            return await self._store.append(session_id, [*turn, _kept(record)], expected_version=end.state)
        now = await self._store.state(session_id)
        present = to_stored(now.entries)
        wanted = [] if base is None else _up_to(base, present) or await self._history(base, None)
        shared = 0
        while shared < min(len(present), len(wanted)) and present[shared].entry.id == wanted[shared].entry.id:
            shared += 1
        entries = [entry for one in wanted[shared:] for entry in to_entries(one.entry)]
        expected: SessionState | Receipt = end.state
        if end.record.head_id is not None:
            label = f"{BRANCH}{end.record.head_id}"
            left = await self._store.save_snapshot(session_id, label, expected_version=end.state)
            expected = Receipt(session_id, left.life, left.version)
        receipt = await self._store.replace(
            session_id,
            [*entries, *turn, _kept(record)],
            after=present[shared - 1].last if shared else 0,
            expected_version=expected,
        )
        return receipt

    async def _delete(self, conversation_id: str, expected: str) -> None:
        while True:
            end = await self._read_end(conversation_id)
            if end.record is None or end.record.revision != expected:
                raise ConversationConflict(conversation_id)
            gone = Record(RECORD, {"deleted": True})
            try:
                # First a mark, with the version checked, so that a concurrent save conflicts; then the erasure.
                marked = await self._store.append(conversation_id, [gone], expected_version=end.state)
            except VersionConflict:
                continue
            with suppress(VersionConflict):  # a save that found the mark erased it, and began the conversation anew
                await self._erase(conversation_id, marked)
            return

    async def _erase(self, conversation_id: str, marked: SessionState | Receipt) -> None:
        """Finish a deletion: erase the conversation that was marked, and the effects beside it.

        Raises VersionConflict if the conversation was begun anew since, and leaves that alone.
        """
        await self._store.erase(conversation_id, expected_version=marked)
        self._ends.pop(conversation_id, None)
        with suppress(InvalidInput):  # the id is too long for a session beside it: there is none
            await self._store.erase(effects_of(conversation_id))


def _kept(record: ConversationRecord) -> Record:
    """Make the record that a save ends with. The conversation id is left out: it is the session's."""
    body: dict[str, Any] = _records.dump_python(record, mode="json", exclude_none=True, exclude={"conversation_id"})
    body["usage"] = {name: value for name, value in body["usage"].items() if value}
    return Record(RECORD, body)


def _record_of(state: SessionState, kept: Record | None) -> ConversationRecord | None:
    """Return the record of a session; None if it is deleted or empty.

    If other adapters have written since the last save, or nothing was saved yet, the revision is the session's version.
    """
    if kept is not None and "deleted" in kept.body:
        return None
    after = kept.seq or 0 if kept is not None else 0
    news = [entry for entry in state.entries if isinstance(entry, ChatMessage) and (entry.seq or 0) > after]
    if kept is None and not news:
        return None
    body: dict[str, Any] = {"head_id": None, "conversation_id": state.session_id}
    if kept is not None:
        body |= kept.body
    if news:
        body["head_id"] = to_stored(state.entries)[-1].entry.id
        body["revision"] = f"everturn-{state.life}-{state.version}"
    return _records.validate_json(msgspec.json.encode(body))


def _up_to(head_id: str, stored: list[StoredEntry]) -> list[StoredEntry] | None:
    """Return the entries up to one; None if it is not among them."""
    for index in range(len(stored) - 1, -1, -1):
        if stored[index].entry.id == head_id:
            return stored[: index + 1]
    return None


def _without_parent(stored: list[StoredEntry]) -> list[StoredEntry]:
    """Drop the first entry of a partial read, whose parent is unknown."""
    return stored[1:]
