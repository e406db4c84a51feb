"""The methods that change a session: each makes one request, with a call id that its retries carry along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import urandom
from typing import Any, cast

import msgspec

from everturn.backend import (
    Append,
    Clear,
    DeleteSnapshot,
    Fork,
    ForkRequest,
    Rollback,
    SetTTL,
    Status,
    TakeSnapshot,
    Undo,
)
from everturn.core import codec
from everturn.core.validation import shown
from everturn.errors import InvalidInput
from everturn.model import (
    JSON,
    MESSAGE,
    ChatMessage,
    Entry,
    Receipt,
    Snapshot,
    Summary,
    ToolCall,
)
from everturn.store.arguments import (
    checked_at,
    checked_count,
    checked_expectation,
    checked_id,
    checked_label,
    checked_snapshot,
)
from everturn.store.carried_summaries import CarriedSummaries
from everturn.store.change_sender import DONE, Expected, Leased, digests_of, new_call
from everturn.store.outcomes import receipt_of, refuse

LONGEST_TTL = 10**11  # seconds: three thousand years
_NO_TURN = (str, bytes, Mapping)  # iterable, but not what was meant


class ChangeOperations(CarriedSummaries):
    """The methods that change a session. Every change is all or nothing, and returns once it is kept.

    `key` makes the caller's own retry find the first attempt (`replayed`); `expected_version` makes the change
    conditional (VersionConflict, and nothing is changed), and so does `lease` (LeaseLost). A
    fault raises MemoryStoreBackendError, whose `outcome` says whether the change may have been kept.
    """

    # --- turns -------------------------------------------------------------------------------------------------------

    async def add_messages(
        self,
        session_id: str,
        messages: Iterable[ChatMessage | Mapping[str, JSON]],
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Append one turn of messages: all or nothing, contiguous, in this order. An empty turn changes nothing.

        Raises InvalidInput, naming the value, if anything in it would not come back as it went in.
        """
        drafts = self._encoded(messages, "messages", codec.encode_message)
        return await self._append(session_id, drafts, None, key, expected_version, lease)

    async def append(
        self,
        session_id: str,
        entries: Iterable[Entry | Mapping[str, JSON]],
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Append one turn of messages, tool calls, summaries and records, mixed: all or nothing, in this order.

        An empty turn changes nothing. Raises InvalidInput, naming the value, if it would not come back as it went in.
        """
        return await self._append(session_id, self._encoded(entries, "entries"), None, key, expected_version, lease)

    async def replace(
        self,
        session_id: str,
        entries: Iterable[Entry | Mapping[str, JSON]],
        *,
        after: int = 0,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """In one undoable step, make the history the path up to seq `after`, and these entries behind it.

        Turns up to `after` that a trim or fold hides stay hidden, and the summaries that stand for them stay, too: if
        they are behind `after`, copies of them are written before these entries, under seqs that the receipt does not
        name. If `after` is one of the hidden entries, such a summary may also tell of hidden ones that went. After 0
        nothing stays. Raises InvalidInput if `after` is neither 0 nor the seq of an entry on the path.
        """
        after = checked_count(after, "after")
        return await self._append(session_id, self._encoded(entries, "entries"), after, key, expected_version, lease)

    async def save_context(
        self,
        session_id: str,
        human: str,
        ai: str,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Append one turn of two messages: the human's words and the AI's answer."""
        for name, text in (("human", human), ("ai", ai)):
            if not isinstance(text, str):
                raise InvalidInput(f"must be a string, not {type(text).__name__}", path=name)
        turn = (ChatMessage("user", human), ChatMessage("assistant", ai))
        return await self.add_messages(session_id, turn, key=key, expected_version=expected_version, lease=lease)

    async def add_tool_call(
        self,
        session_id: str,
        tool_call: ToolCall,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Append a record of a tool call, as a turn of its own."""
        if not isinstance(tool_call, ToolCall):
            raise InvalidInput(f"must be a ToolCall, not {type(tool_call).__name__}", path="tool_call")
        draft = codec.encode(tool_call, "tool_call", self.settings.max_message_bytes)
        return await self._append(session_id, (draft,), None, key, expected_version, lease)

    async def add_summary(
        self,
        session_id: str,
        summary: Summary,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Append a summary, as a turn of its own. The first embedding in a session fixes the length of all."""
        if not isinstance(summary, Summary):
            raise InvalidInput(f"must be a Summary, not {type(summary).__name__}", path="summary")
        draft = codec.encode(summary, "summary", self.settings.max_message_bytes)
        return await self._append(session_id, (draft,), None, key, expected_version, lease)

    def _encoded(
        self, entries: object, path: str, encode: Callable[[Any, str, int], codec.Draft] = codec.encode
    ) -> tuple[codec.Draft, ...]:
        if type(entries) is not list and (isinstance(entries, _NO_TURN) or not isinstance(entries, Iterable)):
            told = f"must be a list, also of one entry ([...]), not {type(entries).__name__}"
            raise InvalidInput(told, path=path)
        limit = self.settings.max_message_bytes
        return tuple([encode(entry, f"{path}[{index}]", limit) for index, entry in enumerate(entries)])

    async def _append(
        self,
        session_id: str,
        drafts: tuple[codec.Draft, ...],
        after: int | None,
        key: str | None,
        expected: Expected,
        lease: Leased,
    ) -> Receipt:
        messages, dimension = 0, None
        for draft in drafts:
            if draft.kind == MESSAGE:
                messages += 1
            elif draft.dimension is not None:
                if dimension is not None and dimension != draft.dimension:
                    lengths = f"{dimension} and {draft.dimension}"
                    raise InvalidInput(f"embeddings of one session have one length, not {lengths}", path="entries")
                dimension = draft.dimension
        action = Append(drafts, messages, dimension, after)
        content = () if key is None else _content_of(action)
        request = self._request(session_id, action, key, expected, content, lease=lease)
        if after is None:
            outcome = await self.send_with_retries(partial(self._attempt, request))
        else:
            outcome = await self._send_replace(request)
        if outcome.status is not Status.APPLIED:
            self._raise_refusal(outcome, request, after)
        return receipt_of(request.session_id, outcome)

    # --- the head ----------------------------------------------------------------------------------------------------

    async def save_snapshot(
        self,
        session_id: str,
        label: str | None = None,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Snapshot:
        """Point a new snapshot at the present state. Costs the same at any length; outlives every rollback."""
        label = checked_label(label)
        action = TakeSnapshot(urandom(12).hex(), label)
        outcome = await self._outcome(session_id, action, key, expected_version, ((label or "").encode(),), lease=lease)
        return cast("Snapshot", outcome.snapshot)

    async def delete_snapshot(
        self,
        session_id: str,
        snapshot: Snapshot | str,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Forget a snapshot. `compact` reclaims entries that only it could reach. Raises SnapshotNotFound."""
        name = checked_snapshot(snapshot)
        content = (name.encode(),)
        return await self._change(
            session_id, DeleteSnapshot(name), key, expected_version, content, named=name, lease=lease
        )

    async def rollback_to_snapshot(
        self,
        session_id: str,
        snapshot: Snapshot | str,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Return to the snapshot's state: messages, tool calls, summaries and records together, in one step.

        Moves a pointer and deletes nothing, so it can be undone, and a later snapshot can be returned to as well.
        Raises SessionNotFound, and SnapshotNotFound also for another session's snapshot or an earlier life's.
        """
        name = checked_snapshot(snapshot)
        return await self._change(
            session_id, Rollback(name), key, expected_version, (name.encode(),), named=name, lease=lease
        )

    async def rollback(
        self,
        session_id: str,
        to: Snapshot | str | int,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Return to the state of a snapshot, or to the state after a version, as rollback_to_snapshot does.

        Raises InvalidInput for a version that was never reached or has been reclaimed.
        """
        target = checked_at(to, "to")
        if target is None:
            raise InvalidInput("is a snapshot (or its id) or a version, not None", path="to")
        if isinstance(target, str):
            return await self.rollback_to_snapshot(
                session_id, target, key=key, expected_version=expected_version, lease=lease
            )
        content = (b"version", str(target).encode())
        return await self._change(
            session_id, Rollback(None, target), key, expected_version, content, named=target, lease=lease
        )

    async def undo(
        self, session_id: str, *, key: str | None = None, expected_version: Expected = None, lease: Leased = None
    ) -> Receipt:
        """Take back the latest rollback, replace, trim, fold or clear; ten steps are kept, and there is no redo.

        Undo of a trim, fold or clear keeps turns that came later. Undo of a rollback or replace would drop them, and
        raises VersionConflict unless `expected_version` names the present version. Raises InvalidInput if none is left.
        """
        action = Undo(drop_turns=expected_version is not None)
        return await self._change(session_id, action, key, expected_version, lease=lease)

    # --- shortening --------------------------------------------------------------------------------------------------

    async def clear(
        self, session_id: str, *, key: str | None = None, expected_version: Expected = None, lease: Leased = None
    ) -> Receipt:
        """Empty the history; snapshots stay, and undo brings it back. An empty or absent session is left as it is."""
        return await self._change(session_id, Clear(), key, expected_version, lease=lease)

    async def set_ttl(
        self,
        session_id: str,
        seconds: float | None,
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Let the session expire this long after its latest change; None: never. Raises SessionNotFound."""
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds <= LONGEST_TTL):
            told = f"is a number of seconds above 0, or None for no limit, not {shown(seconds)}"
            raise InvalidInput(told, path="seconds")
        action = SetTTL(None if seconds is None else float(seconds))
        return await self._change(
            session_id, action, key, expected_version, (repr(action.seconds).encode(),), lease=lease
        )

    # --- copies ------------------------------------------------------------------------------------------------------

    async def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at: Snapshot | str | int | None = None,
        key: str | None = None,
        expected_version: Expected = None,
    ) -> Receipt:
        """Copy a state into a new session, which appears in one step, with the same seqs and a life of its own.

        Snapshots, undo steps and keys stay behind. Raises SessionNotFound if there is nothing to copy, InvalidInput if
        the new session exists. `expected_version` is that of the session copied from; the receipt is the new one's.
        """
        session_id, new_session_id = checked_id(session_id), checked_id(new_session_id, "new_session_id")
        version, life = checked_expectation(expected_version)
        digests = digests_of(key, Fork.kind, (session_id.encode(), repr(checked_at(at)).encode()))
        request = ForkRequest(
            session_id,
            new_session_id,
            checked_at(at),
            new_call(),
            self.settings.ttl,
            *digests,
            version,
            life,
        )
        outcome = await self.send_with_retries(
            lambda retry, by: self.backend.fork(msgspec.structs.replace(request, retry=retry), by)
        )
        if outcome.status in (Status.EXISTS, Status.KEY_REUSED):
            refuse(outcome, msgspec.structs.replace(request, source=new_session_id))
        if outcome.status is Status.REPLAYED:
            self.tell_replay(outcome, new_session_id)
        if outcome.status not in DONE:
            refuse(outcome, request, named=checked_at(at))
        return receipt_of(new_session_id, outcome)


def _content_of(action: Append) -> tuple[bytes, ...]:
    """Collect the content of an append, for comparison when its key is used again."""
    bodies = [part for draft in action.drafts for part in (draft.kind.encode(), codec.canonical(draft.body))]
    return str(action.after).encode(), *bodies
