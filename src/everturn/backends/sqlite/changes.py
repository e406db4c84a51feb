"""Every change to a session, each inside the one transaction that group commit has opened.

A change is planned first (what does it need, what will the state be), and written only when nothing stands against it:
`plan` reads, `write` writes. Which transaction, and when it is synced, is commit.py's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everturn.backend import (
    Append,
    ChangeOutcome,
    ChangeRequest,
    Clear,
    DeleteSnapshot,
    Rollback,
    SetFloor,
    SetTTL,
    Status,
    TakeSnapshot,
    Undo,
)
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.codec import Draft
from everturn.model import Snapshot
from everturn.rules import Range, State, clip, contains, path

SQL = statements.load("changes.sql")
REMEMBERED = 1024  # changes whose call id and key are known, at the least


class Session(msgspec.Struct, frozen=True, gc=False):
    """The row of a live session, as a change finds it; `no` is 0 for one that is yet to begin."""

    no: int
    life: str
    version: int
    last_seq: int
    state: State
    bytes: int
    dimension: int | None
    ttl: float | None

    @property
    def base(self) -> int:
        """What is added to a seq or version to make a row's id."""
        return self.no << 32


class UndoStep(msgspec.Struct, frozen=True, gc=False):
    id: int
    kind: str
    moved_to: int
    hidden: int
    before: State


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What a change will write. Nothing has been written when it is made."""

    state: State
    drafts: tuple[Draft, ...] = ()
    follows: int | None = None  # the entry before the first draft, where that is not the last of the log
    dimension: int | None = None
    undoable: bool = False
    undone: UndoStep | None = None
    snapshot: TakeSnapshot | None = None
    deleted: str | None = None
    ttl: SetTTL | None = None


def apply(db: Connection, request: ChangeRequest, now: float) -> ChangeOutcome:
    """Apply all of the change or nothing. See Backend.change for the order of the checks."""
    session = load(db, request.session_id, now)
    if session is not None and (request.retry or request.key is not None):
        replay = _recall(db, session, request)
        if replay is not None:
            return replay
    if not _as_expected(session, request.expected_version, request.expected_life):
        return _refusal(Status.CONFLICT, session)
    planned = _PLANS[type(request.effect)](db, session, request)
    if isinstance(planned, Plan):
        return write(db, session or begin(db, request, now), planned, request, now)
    return _refusal(planned, session)


def load(db: Connection, session_id: str, now: float) -> Session | None:
    """The live session of this name; None if there is none or it has expired."""
    row = db.execute(SQL["load_session"], (db.namespace, session_id)).fetchone()
    if row is None:
        return None
    no, life, version, last_seq, head, cleared, floor, kept, messages, size, dimension, ttl, expires_at = row
    if expires_at is not None and expires_at <= now:
        return None
    state = State(head, cleared, floor, unpack(kept), messages)
    return Session(no, life, version, last_seq, state, size, dimension, ttl)


def begin(db: Connection, request: ChangeRequest, now: float, origin: str | None = None) -> Session:
    """Begin a new life under the request's name, ending an expired one."""
    name = (db.namespace, request.session_id)
    db.execute(SQL["end_session"], name)
    db.execute(SQL["begin_session"], (*name, request.life, now, now, origin))
    return Session(db.last_insert_rowid(), request.life, 0, 0, State(), 0, None, request.ttl)


def unpack(kept: str | None) -> tuple[int, ...]:
    return () if kept is None else tuple(msgspec.json.decode(kept))


def pack(kept: tuple[int, ...]) -> str | None:
    return msgspec.json.encode(kept).decode() if kept else None


def span(session: Session) -> tuple[int, int]:
    """The ids of all the session's rows in a table keyed by session and seq or version."""
    return session.base, session.base + 0xFFFFFFFF


def path_of(db: Connection, session: Session, head: int) -> list[Range]:
    """The ranges of the log that lead to `head`."""
    return path(head, db.execute(SQL["list_jumps"], (session.base, session.base + head)))


# --- what was done before --------------------------------------------------------------------------------------


def _recall(db: Connection, session: Session, request: ChangeRequest) -> ChangeOutcome | None:
    low, high = span(session)
    if request.retry:
        since = max(low, session.base + session.version - 2 * REMEMBERED)
        row = db.execute(SQL["find_call"], (since, high, request.call)).fetchone()
        if row is not None:
            return _first_receipt(session, request, row)
    if request.key is not None:
        for row in db.execute(SQL["find_key"], (request.key, low, high)).fetchall():
            _, first_seq, count, content, *_ = row
            last_seq = first_seq + count - 1
            if count == 0 or contains(path_of(db, session, session.state.head), last_seq):
                if content != request.content:
                    return _refusal(Status.KEY_REUSED, session)
                return _first_receipt(session, request, row)
    return None


def _first_receipt(session: Session, request: ChangeRequest, row: tuple[Any, ...]) -> ChangeOutcome:
    version, first_seq, count, _, snapshot_id, label, created_at, messages = row
    snapshot = None
    if isinstance(request.effect, TakeSnapshot):
        snapshot = Snapshot(snapshot_id, request.session_id, session.life, label, version, messages, created_at)
    return ChangeOutcome(Status.REPLAYED, session.life, version, first_seq, count, snapshot)


def _as_expected(session: Session | None, version: int | None, life: str | None) -> bool:
    if version is not None and version != (session.version if session else 0):
        return False
    return life is None or life == (session.life if session else "")


def _refusal(status: Status, session: Session | None) -> ChangeOutcome:
    if session is None:
        return ChangeOutcome(status)
    return ChangeOutcome(status, session.life, session.version, detail=session.dimension or 0)


# --- plans: what a change needs, and what it will write ----------------------------------------------------------


def _plan_append(db: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, Append)
    if session is not None and None not in (effect.dimension, session.dimension):
        if effect.dimension != session.dimension:
            return Status.DIMENSION
    last_seq = session.last_seq if session else 0
    state = session.state if session else State()
    if effect.after is not None and effect.after != state.head:
        moved = _moved_back(db, session, state, effect.after)
        if moved is None:
            return Status.NOT_ON_PATH
        state = moved
    elif not effect.drafts:
        return Status.UNCHANGED
    count = len(effect.drafts)
    return Plan(
        State(
            last_seq + count if count else state.head,
            state.cleared,
            state.floor,
            state.kept,
            state.messages + effect.messages,
        ),
        effect.drafts,
        follows=state.head if count and state.head != last_seq else None,
        dimension=effect.dimension,
        undoable=effect.after is not None,
    )


def _moved_back(db: Connection, session: Session | None, state: State, after: int) -> State | None:
    """The state with its head moved back to `after`; None if that is not on the path."""
    ranges = path_of(db, session, state.head) if session else []
    if session is None or (after != 0 and not contains(ranges, after)):
        return None
    dropped = sum(
        db.execute(SQL["count_messages"], (session.base + first, session.base + last)).get
        for first, last in clip(ranges, max(after, state.floor) + 1, state.head)
    )
    kept = tuple(seq for seq in state.kept if seq <= after)
    dropped += len(state.kept) - len(kept)
    return State(after, state.cleared, state.floor, kept, state.messages - dropped)


def _plan_floor(db: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, SetFloor)
    if session is None or effect.floor is None:
        return Status.UNCHANGED
    state, seen = session.state, effect.seen
    if (state.cleared, state.floor, state.kept) != (seen.cleared, seen.floor, seen.kept):
        return Status.MOVED
    if state.head != seen.head and not contains(path_of(db, session, state.head), seen.head):
        return Status.MOVED
    return Plan(
        State(state.head, state.cleared, effect.floor, effect.kept, state.messages - effect.hidden),
        undoable=True,
    )


def _plan_clear(_: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    if session is None or session.state.cleared >= session.state.head:
        return Status.UNCHANGED
    head = session.state.head
    return Plan(State(head, cleared=head, floor=head), undoable=True)


def _plan_snapshot(_: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, TakeSnapshot)
    return Plan(session.state if session else State(), snapshot=effect)


def _plan_delete_snapshot(db: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, DeleteSnapshot)
    if session is None:
        return Status.NO_SESSION
    if snapshot_state(db, session, effect.snapshot_id) is None:
        return Status.NO_SNAPSHOT
    return Plan(session.state, deleted=effect.snapshot_id)


def _plan_rollback(db: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, Rollback)
    if session is None:
        return Status.NO_SESSION
    state = snapshot_state(db, session, effect.snapshot_id)
    if state is None:
        return Status.NO_SNAPSHOT
    return Status.UNCHANGED if state == session.state else Plan(state, undoable=True)


def snapshot_state(db: Connection, session: Session, snapshot_id: str) -> State | None:
    row = db.execute(SQL["load_snapshot"], (snapshot_id, session.no)).fetchone()
    return None if row is None else State(*row[:3], unpack(row[3]), row[4])


def _plan_undo(db: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    if session is None:
        return Status.NO_SESSION
    row = db.execute(SQL["load_undo"], span(session)).fetchone()
    if row is None:
        return Status.NOTHING_TO_UNDO
    step = UndoStep(*row[:4], State(*row[4:7], unpack(row[7]), row[8]))
    now, before = session.state, step.before
    if step.kind in ("trim", "clear"):
        shown = State(now.head, before.cleared, before.floor, before.kept, now.messages + step.hidden)
        return Plan(shown, undone=step)
    if now.head != step.moved_to and request.expected_version is None:
        return Status.FOLLOWED
    return Plan(before, undone=step)


def _plan_ttl(_: Connection, session: Session | None, request: ChangeRequest) -> Plan | Status:
    effect = request.effect
    assert isinstance(effect, SetTTL)
    return Status.NO_SESSION if session is None else Plan(session.state, ttl=effect)


_PLANS: dict[type, Callable[[Connection, Session | None, ChangeRequest], Plan | Status]] = {
    Append: _plan_append,
    SetFloor: _plan_floor,
    Clear: _plan_clear,
    TakeSnapshot: _plan_snapshot,
    DeleteSnapshot: _plan_delete_snapshot,
    Rollback: _plan_rollback,
    Undo: _plan_undo,
    SetTTL: _plan_ttl,
}


# --- writing -----------------------------------------------------------------------------------------------------


def write(db: Connection, session: Session, plan: Plan, request: ChangeRequest, now: float) -> ChangeOutcome:
    """Write what was planned: entries, pointers, the session's row, and the record of the change."""
    base, state, version = session.base, plan.state, session.version + 1
    first, count = session.last_seq + 1, len(plan.drafts)
    kept = pack(state.kept)
    size = session.bytes
    if plan.follows is not None:
        db.execute(SQL["insert_jump"], (base + first, plan.follows))
    for seq, draft in enumerate(plan.drafts, first):
        size += len(draft.body)
        db.execute(SQL["insert_entry"], (base + seq, first, draft.kind, now, draft.checksum, draft.body))
    if plan.undoable:
        _push_undo(db, session, plan, request.kind, version)
    if plan.undone is not None:
        db.execute(SQL["pop_undo"], (plan.undone.id,))
    snapshot = None
    if plan.snapshot is not None:
        snapshot_id, label = plan.snapshot.snapshot_id, plan.snapshot.label
        snapshot = Snapshot(snapshot_id, request.session_id, session.life, label, version, state.messages, now)
        where = (state.head, state.cleared, state.floor, kept, state.messages)
        db.execute(SQL["insert_snapshot"], (snapshot_id, session.no, label, version, *where, now))
    if plan.deleted is not None:
        db.execute(SQL["delete_snapshot"], (plan.deleted,))
    ttl = plan.ttl.seconds if plan.ttl is not None else session.ttl
    db.execute(
        SQL["update_session"],
        (
            version,
            session.last_seq + count,
            state.head,
            state.cleared,
            state.floor,
            kept,
            state.messages,
            size,
            session.dimension or plan.dimension,
            ttl,
            None if ttl is None else now + ttl,
            now,
            session.no,
        ),
    )
    db.execute(
        SQL["insert_change"],
        (
            base + version,
            request.kind,
            request.call,
            request.key,
            request.content,
            first if count else 0,
            count,
            _snapshot_named(request),
            plan.snapshot.label if plan.snapshot else None,
            now,
            state.head,
            state.cleared,
            state.floor,
            kept,
            state.messages,
        ),
    )
    return ChangeOutcome(Status.APPLIED, session.life, version, first if count else 0, count, snapshot)


def _push_undo(db: Connection, session: Session, plan: Plan, kind: str, version: int) -> None:
    before = session.state
    hidden = before.messages - plan.state.messages
    where = (before.head, before.cleared, before.floor, pack(before.kept), before.messages)
    db.execute(SQL["push_undo"], (session.base + version, kind, plan.state.head, hidden, *where))
    db.execute(SQL["drop_old_undo"], (*span(session), *span(session)))


def _snapshot_named(request: ChangeRequest) -> str | None:
    effect = request.effect
    return effect.snapshot_id if isinstance(effect, TakeSnapshot | DeleteSnapshot | Rollback) else None
