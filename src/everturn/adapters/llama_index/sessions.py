"""Reads and changes of the session of a LlamaIndex key. Each change is one atomic step.

A message is archived (taken out of the queue of `Memory`) by a later record that names the last archived seq, or by its
own metadata. So archiving rewrites nothing, and a rollback takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from llama_index.core.llms import ChatMessage as Message
from llama_index.core.storage.chat_store.base_db import MessageStatus

from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    InvalidInput,
    Record,
    SessionInfo,
    SessionState,
    Unsupported,
    VersionConflict,
)
from everturn.adapters._shared.seq_references import refuse_referenced
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.llama_index import messages
from everturn.model import Entry

ARCHIVE = "llama.archived"  # kind of the record; its body is the last archived seq


class ChatSessions:
    """Operations behind both of LlamaIndex's interfaces, as coroutines for a CallRunner."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store

    async def read(self, key: str) -> list[Message]:
        """Return all messages in order; none if there is no such session."""
        history = await self._store.get_history(key)
        return [_decoded(key, entry) for entry in history]

    async def read_status(self, key: str, status: MessageStatus | None) -> list[Message]:
        """Return the messages in the queue, or those archived; with None, both."""
        if status is None:
            return await self.read(key)
        if status is MessageStatus.ACTIVE:
            return [_decoded(key, entry) for entry in await self._queue(key)]
        return [_decoded(key, entry) for entry in _with_status(await self._store.state(key), status)]

    async def _queue(self, key: str) -> Sequence[ChatMessage]:
        """Return the messages in the queue without reading the archived ones: LlamaIndex asks at every turn.

        Reads the archive records first, then the messages at the same version. If that version is gone meanwhile (the
        session was erased), reads the whole session at once.
        """
        marks = await self._store.state(key, kind=ARCHIVE)
        if not marks.version:
            return ()
        last = _last_archived(marks)
        try:
            history = await self._store.get_history(key, at=marks.version, after=last)
        except InvalidInput as exc:
            if exc.path != "at":
                raise
            return _with_status(await self._store.state(key), MessageStatus.ACTIVE)
        return [entry for entry in history if not _is_archived(entry, last)]

    async def add(self, key: str, added: Iterable[Message], status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Append messages as one turn: all or none. No messages change nothing."""
        if turn := encoded(added, status):
            await self._store.add_messages(key, turn)

    async def set(self, key: str, wanted: Iterable[Message], status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Replace the whole history in one undoable step."""
        await self._store.replace(key, encoded(wanted, status), after=0)

    async def archive_oldest(self, key: str, number: int) -> list[Message]:
        """Archive the oldest messages of the queue in one step, and return them."""
        while True:
            state = await self._store.state(key)
            oldest = _with_status(state, MessageStatus.ACTIVE)[: max(number, 0)]
            if not oldest:
                return []
            try:
                await self._store.append(key, [Record(ARCHIVE, oldest[-1].seq)], expected_version=state)
            except VersionConflict:
                continue  # another writer was first: read again
            return [_decoded(key, entry) for entry in oldest]

    async def remove_all(self, key: str) -> list[Message] | None:
        """Erase the session. Returns its messages, or None if there was no session."""
        state = await self._store.state(key)
        if not state.version:
            return None
        removed = [_decoded(key, entry) for entry in state.messages]
        await self._store.erase(key)
        return removed

    async def remove_at(self, key: str, index: int) -> Message | None:
        """Remove and return the message at an index (from the end, if negative), in one step; None if there is none."""

        def at_index(state: SessionState) -> Sequence[ChatMessage]:
            found = state.messages
            return [found[index]] if -len(found) <= index < len(found) else ()

        return next(iter(await self.remove(key, at_index)), None)

    async def remove_oldest(self, key: str, number: int) -> list[Message]:
        """Remove the oldest messages of the queue in one step, and return them."""
        return await self.remove(key, lambda state: _with_status(state, MessageStatus.ACTIVE)[: max(number, 0)])

    async def remove_status(self, key: str, status: MessageStatus) -> None:
        """Remove the messages in the queue, or those archived, in one step."""
        await self.remove(key, lambda state: _with_status(state, status))

    async def remove(self, key: str, choose: Callable[[SessionState], Sequence[ChatMessage]]) -> list[Message]:
        """Remove the messages that `choose` returns, in one step, and return them. Then reclaim their bytes.

        The store cannot take an entry out of the middle, so this replaces everything from the first of them on. If the
        session has changed since it was read, the replace is refused, and all is read and chosen again. Raises
        Unsupported if records of another framework would move that refer to messages by seq.
        """
        while True:
            state = await self._store.state(key)
            gone = choose(state)
            if not gone:
                return []
            removed = [_decoded(key, entry) for entry in gone]
            before, rest = _without(state, {entry.seq for entry in gone})
            refuse_referenced(key, rest, "the message")
            try:
                await self._store.replace(key, rest, after=before, expected_version=state)
            except VersionConflict:
                continue  # another writer was first: read again
            await self._store.compact(key, drop_undo=True)
            return removed

    async def keys(self) -> list[str]:
        """Return the ids of all sessions."""
        found: list[SessionInfo] = []
        page = None
        while True:
            portion = await self._store.sessions(limit=500, page=page)
            found += portion.sessions
            if (page := portion.next) is None:
                return list(dict.fromkeys(session.session_id for session in found))


def _with_status(state: SessionState, status: MessageStatus) -> list[ChatMessage]:
    last, wanted = _last_archived(state), status is MessageStatus.ARCHIVED
    return [entry for entry in state.entries if isinstance(entry, ChatMessage) and _is_archived(entry, last) is wanted]


def _archived(state: SessionState) -> Collection[int | None]:
    """Return the seqs of the archived messages."""
    return {entry.seq for entry in _with_status(state, MessageStatus.ARCHIVED)}


def _last_archived(state: SessionState) -> int:
    return max((entry.body for entry in state.records if entry.kind == ARCHIVE), default=0)


def _is_archived(entry: ChatMessage, last: int) -> bool:
    return (entry.seq or 0) <= last or (bool(entry.metadata) and messages.status_of(entry) is not None)


def _without(state: SessionState, gone: Collection[int | None]) -> tuple[int, list[Entry]]:
    """Return the seq of the last entry that stays in place, and the entries to write after it.

    Rewritten entries get new seqs, to which no archive record refers. So those that are archived say it in their
    metadata, and one record is written for those that stay in place.
    """
    place = next(place for place, entry in enumerate(state.entries) if entry.seq in gone)
    stay, move = state.entries[:place], state.entries[place:]
    old = _archived(state)
    last = max((entry.seq or 0 for entry in stay if entry.seq in old), default=0)
    rest: list[Entry] = [Record(ARCHIVE, last)] if last else []
    for entry in move:
        if entry.seq in gone or (isinstance(entry, Record) and entry.kind == ARCHIVE):
            continue
        rest.append(messages.archived(entry) if isinstance(entry, ChatMessage) and entry.seq in old else entry)
    return (stay[-1].seq or 0) if stay else 0, rest


def encoded(wanted: Iterable[Message], status: MessageStatus = MessageStatus.ACTIVE) -> list[ChatMessage]:
    """Return messages as entries. Raises InvalidInput for one that would not come back equal."""
    said = messages.ARCHIVED if status is MessageStatus.ARCHIVED else None
    turn: list[ChatMessage] = []
    for message in wanted:
        try:
            turn.append(messages.to_entry(message, said))
        except RoundTripError as exc:
            raise InvalidInput(str(exc), path=f"messages[{len(turn)}]") from exc
    return turn


def _decoded(key: str, entry: ChatMessage) -> Message:
    try:
        return messages.from_entry(entry)
    except RoundTripError as exc:
        raise Unsupported(f"message {entry.seq} of session {key!r} cannot be read: {exc}") from exc
