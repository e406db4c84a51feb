"""Plans: what a change needs, and what it will write. Everything is checked here, before the first write.

A plan reads and decides; it writes nothing. apply_change.py carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everturn.backend import (
    Append,
    Clear,
    DeleteSnapshot,
    Effect,
    Rollback,
    SetFloor,
    SetTTL,
    Status,
    TakeSnapshot,
    Undo,
)
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.packed_rows import look_from
from everturn.backends.sqlite.session_row import Session, Trail, snapshot_state, state_from
from everturn.core.codec import Draft
from everturn.core.paths import State, clip
from everturn.errors import MemoryStoreBackendError

SQL = statements.load("plans.sql")
LAST_SEQ = 2**32 - 1  # what fits into a row's id beside the session's number


class UndoStep(msgspec.Struct, frozen=True, gc=False):
    """What undo would take back, and the state before it."""

    id: int
    kind: str
    moved_to: int
    hidden: int
    before: State


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What a change will write."""

    state: State
    drafts: tuple[Draft, ...] = ()
    follows: int | None = None  # the entry before the first draft, where that is not the last of the log
    dimension: int | None = None
    undoable: bool = False
    undone: UndoStep | None = None
    snapshot: TakeSnapshot | None = None
    deleted: str | None = None
    ttl: SetTTL | None = None


def plan(db: Connection, session: Session | None, effect: Effect) -> Plan | Status:
    """The plan for an effect on a session (None: there is none yet), or why it cannot be had."""
    return _PLANNERS[type(effect)](db, session, effect)


def _append(db: Connection, session: Session | None, effect: Append) -> Plan | Status:
    state, last_seq, dimension = State(), 0, None
    if session is not None:
        state, last_seq, dimension = session.state, session.last_seq, session.dimension
    if None not in (dimension, effect.dimension) and dimension != effect.dimension:
        return Status.DIMENSION
    if effect.after is not None and effect.after != state.head:
        moved = _moved_back(db, session, effect.after)
        if moved is None:
            return Status.NOT_ON_PATH
        state = moved
    elif not effect.drafts:
        return Status.UNCHANGED
    count = len(effect.drafts)
    if last_seq + count > LAST_SEQ:
        raise MemoryStoreBackendError(f"a session takes {LAST_SEQ:,} entries at most; fork it", outcome="not_written")
    return Plan(
        State(
            last_seq + count if count else state.head,
            state.cleared,
            state.floor,
            state.kept,
            state.messages + effect.messages,
        ),
        effect.drafts,
        state.head if count and state.head != last_seq else None,
        effect.dimension,
        effect.after is not None,
    )


def _moved_back(db: Connection, session: Session | None, after: int) -> State | None:
    """The state with its head moved back to `after`; None if that is not on the path."""
    if session is None:
        return None
    state = session.state
    trail = Trail(db, session.no, state.head)
    if after != 0 and after not in trail:
        return None
    kept = tuple(seq for seq in state.kept if seq <= after)
    if after <= state.floor:
        messages = len(kept)  # nothing else is left: what would be dropped need not be counted
    else:
        messages = state.messages
        ranges = trail.down_to(after + 1)
        for first, last in clip(ranges, after + 1, state.head):
            low = session.base + look_from(first, ranges)
            messages -= db.value(SQL["count_messages"], (low, session.base + first, session.base + last))
    # What is hidden never lies past the head: else it would hide what is appended there in a fork.
    return State(after, min(after, state.cleared), min(after, state.floor), kept, messages)


def _set_floor(db: Connection, session: Session | None, effect: SetFloor) -> Plan | Status:
    if session is None or effect.floor is None:
        return Status.UNCHANGED
    state, seen = session.state, effect.seen
    if session.life != effect.life:
        return Status.MOVED
    if (state.cleared, state.floor, state.kept) != (seen.cleared, seen.floor, seen.kept):
        return Status.MOVED
    if state.head != seen.head and seen.head not in Trail(db, session.no, state.head):
        return Status.MOVED
    trimmed = State(state.head, state.cleared, effect.floor, effect.kept, state.messages - effect.hidden)
    return Plan(trimmed, undoable=True)


def _clear(db: Connection, session: Session | None, _effect: Clear) -> Plan | Status:
    if session is None or not _shows_anything(db, session):
        return Status.UNCHANGED
    head = session.state.head
    return Plan(State(head, cleared=head, floor=head), undoable=True)


def _shows_anything(db: Connection, session: Session) -> bool:
    state = session.state
    if state.floor < state.head or state.kept:
        return True
    trail = Trail(db, session.no, state.head)
    trimmed = (session.base + state.cleared + 1, session.base + state.floor)
    return any(seq in trail for (seq,) in db.execute(SQL["summaries_between"], trimmed))


def _take_snapshot(_db: Connection, session: Session | None, effect: TakeSnapshot) -> Plan | Status:
    return Plan(session.state if session else State(), snapshot=effect)


def _delete_snapshot(db: Connection, session: Session | None, effect: DeleteSnapshot) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    if snapshot_state(db, session.no, effect.snapshot_id) is None:
        return Status.NO_SNAPSHOT
    return Plan(session.state, deleted=effect.snapshot_id)


def _rollback(db: Connection, session: Session | None, effect: Rollback) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    state = snapshot_state(db, session.no, effect.snapshot_id)
    if state is None:
        return Status.NO_SNAPSHOT
    return Status.UNCHANGED if state == session.state else Plan(state, undoable=True)


def _undo(db: Connection, session: Session | None, effect: Undo) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    row: Any = db.row(SQL["load_undo"], session.span)
    if row is None:
        return Status.NOTHING_TO_UNDO
    step_id, kind, moved_to, hidden, *columns = row
    step = UndoStep(step_id, kind, moved_to, hidden, state_from(columns))
    now, before = session.state, step.before
    if kind in ("trim", "clear"):
        # What was hidden is shown again; what came later is not touched.
        shown = State(now.head, before.cleared, before.floor, before.kept, now.messages + hidden)
        return Plan(shown, undone=step)
    if now.head != moved_to and not effect.drop_turns:
        return Status.FOLLOWED
    return Plan(before, undone=step)


def _set_ttl(_db: Connection, session: Session | None, effect: SetTTL) -> Plan | Status:
    return Status.NO_SESSION if session is None else Plan(session.state, ttl=effect)


_PLANNERS: dict[type[Effect], Callable[..., Plan | Status]] = {
    Append: _append,
    SetFloor: _set_floor,
    Clear: _clear,
    TakeSnapshot: _take_snapshot,
    DeleteSnapshot: _delete_snapshot,
    Rollback: _rollback,
    Undo: _undo,
    SetTTL: _set_ttl,
}
