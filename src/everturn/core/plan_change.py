"""Plans a change: the rules it must pass, and the rows it will write. Everything is checked before the first write.

This is the reference for every backend. SQLite, DynamoDB and the example backend call it; Redis's scripts (_change.lua)
and PostgreSQL's functions (schema/) do the same steps where the data is, and are read against it. It writes nothing,
and asks a Reader for the little it needs of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from everturn.core.codec import Draft
from everturn.core.effects import FAILED, STARTED, BeginEffect, EndEffect, StoredEffect, begun, ended
from everturn.core.facts import MOST_FACTS, SetFacts, merged
from everturn.core.paths import State
from everturn.core.requests import (
    Action,
    Append,
    Clear,
    DeleteSnapshot,
    Fold,
    Rollback,
    SetTTL,
    Status,
    TakeSnapshot,
    Trim,
    Undo,
)


class SessionFacts(Protocol):
    """The facts of a session that a plan depends on."""

    @property
    def life(self) -> str: ...

    @property
    def state(self) -> State: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def dimension(self) -> int | None: ...


class UndoStep(msgspec.Struct, frozen=True, gc=False):
    """A change that undo takes back: the head right after it, how many messages it hid, and the state before it."""

    id: int  # the backend's own
    kind: str
    moved_to: int
    hidden: int
    before: State


class Reader(Protocol):
    """Answers questions about the session of a change. All answers are of one moment: that of the change."""

    def is_on_path(self, seq: int) -> bool:
        """Whether the entry is on the path to the head."""

    def messages_after(self, seq: int) -> int:
        """Count the messages on the path after this entry."""

    def has_summary_after(self, seq: int) -> bool:
        """Whether there is a summary on the path after this entry; or an entry above the floor that is lost, which may
        have been one."""

    def shows_summaries(self) -> bool:
        """Whether the trimmed part of the path has a summary, which is still shown."""

    def snapshot(self, snapshot_id: str) -> State | None:
        """Return the state that a snapshot of this life keeps; None if it has no such snapshot."""

    def state_after(self, version: int) -> State | None:
        """Return the state after a change of this life (0: before the first); None if it is not known (any more)."""

    def last_undo_step(self) -> UndoStep | None:
        """Return the latest change that undo could take back; None if there is none."""

    def effect(self, key: str) -> StoredEffect | None:
        """Return the row of an effect of this life; None if it was never begun."""

    def facts(self) -> Mapping[str, str]:
        """Return the facts of this life that set_facts set."""


class Plan(msgspec.Struct, frozen=True, gc=False):
    """Everything that a change will write."""

    state: State
    drafts: tuple[Draft, ...] = ()
    follows: int | None = None  # the entry before the first that is written, where that is not the last of the log
    dimension: int | None = None
    undoable: bool = False
    undone: UndoStep | None = None
    snapshot: TakeSnapshot | None = None
    deleted: str | None = None
    ttl: SetTTL | None = None
    effect: StoredEffect | None = None  # the row to write, once it is stamped
    facts: Mapping[str, str] | None = None  # all that the session has from now on; None: as before
    carried: tuple[Draft, ...] = ()  # written before `drafts`, as a turn of their own that the receipt does not name


def plan_change(session: SessionFacts | None, action: Action, reader: Reader) -> Plan | Status:
    """Plan an action on a session (None: there is none yet). Returns a Status if it is refused or does nothing.

    The backend has already looked for an earlier attempt of the call, then compared the expected version, then looked
    whether a lease that the change names is in force (leases.is_fenced_off), in this order: a retry of a change that
    was applied is told so, also if its worker has lost its lease since.
    """
    return _PLANNERS[type(action)](session, action, reader)


def _append(session: SessionFacts | None, action: Append, reader: Reader) -> Plan | Status:
    state, last_seq, dimension = State(), 0, None
    if session is not None:
        state, last_seq, dimension = session.state, session.last_seq, session.dimension
    if None not in (dimension, action.dimension) and dimension != action.dimension:
        return Status.DIMENSION
    carried = action.carried or ()
    if action.after is not None and action.after != state.head:
        if session is None or (action.after != 0 and not reader.is_on_path(action.after)):
            return Status.NOT_ON_PATH
        hides = state.cleared < min(action.after, state.floor)
        if action.carried is None and hides and reader.has_summary_after(action.after):
            return Status.SUMMARY_DROPPED
        state = _moved_back(state, action.after, reader)
    elif not action.drafts and not carried:
        return Status.UNCHANGED
    count = len(carried) + len(action.drafts)
    head = last_seq + count if count else state.head
    # Cleared and floor never lie past the head: else they would hide entries that a fork appends after it.
    cleared, floor = min(state.cleared, head), min(state.floor, head)
    return Plan(
        State(head, cleared, floor, state.kept, state.messages + action.messages),
        action.drafts,
        state.head if count and state.head != last_seq else None,
        action.dimension,
        action.after is not None,
        carried=carried,
    )


def _moved_back(state: State, after: int, reader: Reader) -> State:
    """Move the head of a state back to `after`, an entry on its path (or 0: before all of them).

    Cleared and floor stay: a summary that is written behind `after` still stands for what it covers.
    """
    kept = tuple(seq for seq in state.kept if seq <= after)
    # At or below the floor nothing but the kept messages is left: the others need not be counted.
    messages = len(kept) if after <= state.floor else state.messages - reader.messages_after(after)
    return msgspec.structs.replace(state, head=after, kept=kept, messages=messages)


def _trim(session: SessionFacts | None, action: Trim, reader: Reader) -> Plan | Status:
    if session is None or action.floor is None:
        return Status.UNCHANGED
    if _has_moved(session, action, reader):
        return Status.MOVED
    state = session.state
    trimmed = State(state.head, state.cleared, action.floor, action.kept, state.messages - action.hidden)
    return Plan(trimmed, undoable=True)


def _has_moved(session: SessionFacts, action: Trim | Fold, reader: Reader) -> bool:
    """Whether the entries that the plan would hide are no longer in view as they were seen. Appends do no harm."""
    state, seen = session.state, action.seen
    if session.life != action.life:
        return True
    if (state.cleared, state.floor, state.kept) != (seen.cleared, seen.floor, seen.kept):
        return True
    return state.head != seen.head and not reader.is_on_path(seen.head)


def _fold(session: SessionFacts | None, action: Fold, reader: Reader) -> Plan | Status:
    if session is None or _has_moved(session, action, reader):
        return Status.MOVED
    if None not in (session.dimension, action.dimension) and session.dimension != action.dimension:
        return Status.DIMENSION
    state, last_seq = session.state, session.last_seq
    return Plan(
        State(last_seq + 1, state.cleared, action.floor, action.kept, state.messages - action.hidden),
        action.drafts,
        state.head if state.head != last_seq else None,
        action.dimension,
        undoable=True,
    )


def _clear(session: SessionFacts | None, _action: Clear, reader: Reader) -> Plan | Status:
    if session is None:
        return Status.UNCHANGED
    state = session.state
    if state.floor == state.head and not state.kept and not reader.shows_summaries():
        return Status.UNCHANGED  # it shows nothing
    return Plan(State(state.head, cleared=state.head, floor=state.head), undoable=True)


def _take_snapshot(session: SessionFacts | None, action: TakeSnapshot, _reader: Reader) -> Plan | Status:
    return Plan(session.state if session else State(), snapshot=action)


def _delete_snapshot(session: SessionFacts | None, action: DeleteSnapshot, reader: Reader) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    if reader.snapshot(action.snapshot_id) is None:
        return Status.NO_SNAPSHOT
    return Plan(session.state, deleted=action.snapshot_id)


def _rollback(session: SessionFacts | None, action: Rollback, reader: Reader) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    if action.snapshot_id is not None:
        state, absent = reader.snapshot(action.snapshot_id), Status.NO_SNAPSHOT
    else:
        state, absent = reader.state_after(action.version or 0), Status.NO_VERSION
    if state is None:
        return absent
    return Status.UNCHANGED if state == session.state else Plan(state, undoable=True)


def _undo(session: SessionFacts | None, action: Undo, reader: Reader) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    step = reader.last_undo_step()
    if step is None:
        return Status.NOTHING_TO_UNDO
    now, before = session.state, step.before
    if step.kind in ("trim", "clear") or (step.kind == "fold" and now.head != step.moved_to):
        # The hidden entries are shown again; later turns stay as they are. (The summary of a fold that turns follow is
        # still on the path, and in view only while the messages that it stands for are hidden: prompts.is_in_view.)
        shown = State(now.head, before.cleared, before.floor, before.kept, now.messages + step.hidden)
        return Plan(shown, undone=step)
    if now.head != step.moved_to and not action.drop_turns:
        return Status.FOLLOWED
    return Plan(before, undone=step)


def _set_ttl(session: SessionFacts | None, action: SetTTL, _reader: Reader) -> Plan | Status:
    return Status.NO_SESSION if session is None else Plan(session.state, ttl=action)


def _set_facts(session: SessionFacts | None, action: SetFacts, reader: Reader) -> Plan | Status:
    before = reader.facts() if session is not None else {}
    after = merged(before, action)
    if after == before:
        return Status.UNCHANGED
    if len(after) > MOST_FACTS:
        return Status.TOO_MANY_FACTS
    return Plan(session.state if session else State(), facts=after)


def _begin_effect(session: SessionFacts | None, action: BeginEffect, reader: Reader) -> Plan | Status:
    before = reader.effect(action.key) if session is not None else None
    if before is not None and before.status != FAILED and not _may_repeat(before, action):
        return Status.UNCHANGED
    return Plan(session.state if session else State(), effect=begun(action, before))


def _may_repeat(before: StoredEffect, action: BeginEffect) -> bool:
    return before.status == STARTED and before.attempt == action.repeats


def _end_effect(session: SessionFacts | None, action: EndEffect, reader: Reader) -> Plan | Status:
    before = reader.effect(action.key) if session is not None else None
    if session is None or before is None:
        return Status.NO_EFFECT
    if action.attempt not in (0, before.attempt):
        return Status.EFFECT_REPEATED
    if before.status != STARTED:
        return Status.EFFECT_ENDED
    return Plan(session.state, effect=ended(action, before))


_PLANNERS: dict[type[Action], Callable[..., Plan | Status]] = {
    Append: _append,
    Trim: _trim,
    Fold: _fold,
    Clear: _clear,
    TakeSnapshot: _take_snapshot,
    DeleteSnapshot: _delete_snapshot,
    Rollback: _rollback,
    Undo: _undo,
    SetTTL: _set_ttl,
    SetFacts: _set_facts,
    BeginEffect: _begin_effect,
    EndEffect: _end_effect,
}
