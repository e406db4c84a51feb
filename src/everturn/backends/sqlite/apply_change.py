"""Applies one change to a session, as SQL: here a turn becomes rows.

The steps, in order: load the session, look for an earlier attempt, compare the expected version, look at the lease that
is named, plan (core/plan_change.py), write. They run in a batch's transaction (transaction.py): if one raises, nothing
is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everturn.backend import REMEMBERED, BeginEffect, ChangeOutcome, ChangeRequest, Status, TakeSnapshot, stamped
from everturn.backends.sqlite import effects, leases, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.packed_rows import PackedRow, packed
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.backends.sqlite.plan_reader import PlanReader
from everturn.backends.sqlite.row_checksums import column_sum, of_entries, of_lines, sealed
from everturn.backends.sqlite.session_row import SessionRow, change_columns, columns_of, load, store
from everturn.core.facts import encode_facts
from everturn.core.paths import Jump, State
from everturn.core.plan_change import Plan, plan_change
from everturn.errors import MemoryStoreBackendError
from everturn.model import Snapshot

SQL = statements.load("apply_change.sql")
_INSERT = SQL["insert_row"]
LAST_SEQ = 2**32 - 1  # the greatest seq that fits into a row's id beside the session's number
NO_SESSION = SessionRow(0, "", "")  # for the plan of a first change: its reader finds no rows


def apply_change(db: Connection, request: ChangeRequest, now: float) -> ChangeOutcome:
    """Apply all of the change or nothing. Backend.change says in which order it is checked.

    Returns a refusal as a Status; raises MemoryStoreBackendError (not_written) for a session that is full.
    """
    session = load(db, request.session_id, now)
    if session is not None and (request.retry or request.key is not None):
        replay = earlier_outcome(db, session, request)
        if replay is not None:
            return replay
    if (request.expected_version, request.expected_life) != (None, None) and not _as_expected(session, request):
        return _refusal(Status.CONFLICT, session)
    if request.lease is not None and leases.is_refused(db, session, request, now):
        return _refusal(Status.LEASE_LOST, session)
    planned = plan_change(session, request.action, PlanReader(db, session or NO_SESSION))
    if isinstance(planned, Status):
        return effects.with_row(db, session, request, _refusal(planned, session), now)
    if planned.state.head > LAST_SEQ:
        raise MemoryStoreBackendError(f"a session takes {LAST_SEQ:,} entries at most; fork it", outcome="not_written")
    if session is None:
        session = begin_life(db, request, now)
    return write_plan(db, session, planned, request, now)


def _as_expected(session: SessionRow | None, request: ChangeRequest) -> bool:
    version, life = (session.version, session.life) if session else (0, "")
    return request.expected_version in (None, version) and request.expected_life in (None, life)


def _refusal(status: Status, session: SessionRow | None) -> ChangeOutcome:
    if session is None:
        return ChangeOutcome(status)
    return ChangeOutcome(status, session.life, session.version, detail=session.dimension or 0)


# --- earlier attempts ------------------------------------------------------------------------------------------------


def earlier_outcome(db: Connection, session: SessionRow, request: ChangeRequest) -> ChangeOutcome | None:
    """Return the outcome of an earlier attempt of this call, or of the first use of its key. None: neither is known."""
    low, high = session.span
    if request.retry:
        since = max(low, session.base + session.version - 2 * REMEMBERED)
        row = db.row(SQL["find_call"], (since, high, request.call))
        if row is not None:
            return _first_receipt(session, request, row)
        _refuse_lost_changes(db, session)
    if request.key is not None:
        walk = PathWalk(db, session, session.state.head)
        for row in db.execute(SQL["find_key"], (request.key, low, high)):
            _, _, _, key, content, first_seq, count, *_ = change_columns(row, session.base)
            if key != request.key:
                raise ValueError("the index of keys leads to a change with another key")
            # A turn that a rollback dropped may be written again; a change without a turn is never dropped.
            if count == 0 or first_seq + count - 1 in walk:
                return _first_receipt(session, request, row, is_reuse=content != request.content)
        if db.row(SQL["misplaced_key"], (request.key, low, high)) is not None:
            raise ValueError("a change with this key may be stored: the index of keys is damaged where it would be")
    return None


def _refuse_lost_changes(db: Connection, session: SessionRow) -> None:
    """Raise ValueError unless all changes that must be remembered are stored: the call may be one of those lost."""
    since = max(session.version - REMEMBERED, 0)
    found = db.value(SQL["count_changes"], (session.base + since + 1, session.base + session.version))
    if found != session.version - since:
        raise ValueError(f"its changes do not lead to version {session.version}")


def _first_receipt(session: SessionRow, request: ChangeRequest, row: Any, *, is_reuse: bool = False) -> ChangeOutcome:
    version, _, _, _, _, first_seq, count, snapshot_id, label, created_at, *_, messages = change_columns(
        row, session.base
    )
    if is_reuse:
        return ChangeOutcome(Status.KEY_REUSED, session.life, version, first_seq, count)
    snapshot = None
    if isinstance(request.action, TakeSnapshot):
        snapshot = Snapshot(snapshot_id, request.session_id, session.life, label, version, messages, created_at)
    return ChangeOutcome(Status.REPLAYED, session.life, version, first_seq, count, snapshot)


# --- writing ---------------------------------------------------------------------------------------------------------


def begin_life(db: Connection, request: ChangeRequest, now: float, origin: str | None = None) -> SessionRow:
    """Begin a new life under the request's session_id. A life that expired gives up the name."""
    name = (db.namespace, request.session_id)
    db.execute(SQL["end_session"], name)
    db.execute(SQL["begin_session"], (*name, request.life, now, now))
    number = db.last_insert_rowid()
    leases.bind(db, request.session_id, request.life)
    return SessionRow(
        number, request.session_id, request.life, ttl=request.ttl, created_at=now, changed_at=now, forked_from=origin
    )


def write_plan(db: Connection, session: SessionRow, planned: Plan, request: ChangeRequest, now: float) -> ChangeOutcome:
    """Write the plan: entries and pointers, then the session's row, then the record of the change."""
    now = float(now)  # as it is read again, which the checksums of rows depend on
    version = session.version + 1
    start, last_seq = session.last_seq + 1, session.last_seq + len(planned.carried) + len(planned.drafts)
    first, count = (start + len(planned.carried), len(planned.drafts)) if planned.drafts else (0, 0)
    base, size = session.number << 32, session.bytes
    last_jump, undo_steps, snapshots = session.last_jump, session.undo_steps, session.snapshots
    if planned.follows is not None:
        last_jump = insert_jumps(db, base, [(start, planned.follows)], last_jump)
    for turn, drafts in ((start, planned.carried), (first, planned.drafts)):
        for row in packed(turn, drafts):
            size += row.size
            insert_row(db, session.number, row, turn, now)
    if planned.undoable:
        undo_steps = _push_undo(db, session, planned.state, request.action.kind, version)
    if planned.undone is not None:
        db.execute(SQL["pop_undo"], (planned.undone.id,))
        undo_steps -= 1
    if planned.deleted is not None:
        db.execute(SQL["delete_snapshot"], (planned.deleted,))
        snapshots -= 1
    where = columns_of(planned.state)
    snapshot = None
    if planned.snapshot is not None:
        snapshot_id, label = planned.snapshot.snapshot_id, planned.snapshot.label
        db.execute(SQL["insert_snapshot"], sealed(snapshot_id, session.number, label, version, *where, now))
        snapshots += 1
        snapshot = Snapshot(snapshot_id, request.session_id, session.life, label, version, planned.state.messages, now)
    written = None
    effects_there = session.effects
    if planned.effect is not None:
        written = stamped(planned.effect, version, now)
        if isinstance(request.action, BeginEffect) and written.attempt == 1:
            effects.begin(db, session, written)
            effects_there += 1
        else:
            effects.store(db, session.number, written)
    ttl = session.ttl if planned.ttl is None else planned.ttl.seconds
    expires_at = None if ttl is None else db.lives_from + ttl
    if expires_at is not None and planned.ttl is None and session.expires_at is not None:
        expires_at = max(expires_at, session.expires_at)  # a change by a clock that is behind does not shorten the TTL
    dimension = session.dimension or planned.dimension
    changing = (version, last_seq, planned.state, size, dimension, ttl, expires_at)
    found_by = session.facts_text if planned.facts is None else encode_facts(planned.facts)
    beside = (session.forked_from, snapshots, undo_steps, last_jump, found_by, effects_there)
    store(
        db,
        SessionRow(session.number, session.session_id, session.life, *changing, session.created_at, now, *beside),
        facts=planned.facts is not None,
    )
    db.execute(
        SQL["insert_change"],
        sealed(
            *(base + version, request.action.kind, request.call, request.key, request.content, first, count),
            *(getattr(request.action, "snapshot_id", None), getattr(request.action, "label", None), now, *where),
        ),
    )
    return ChangeOutcome(Status.APPLIED, session.life, version, first, count, snapshot, effect=written)


def insert_row(db: Connection, number: int, row: PackedRow, turn: int, at: float) -> None:
    """Write one row of the log of a session. `turn` is the seq of the first entry of its turn."""
    columns = column_sum(row.seq, turn, row.count, at)
    checksums = None if row.lines is None else of_lines(row.lines, columns)
    whole = of_entries(row.checksum, number, columns)
    db.execute(_INSERT, ((number << 32) + row.seq, turn, row.kind, at, whole, row.body, row.count, checksums))


def insert_jumps(db: Connection, base: int, jumps: Iterable[Jump], prior: int) -> int:
    """Insert jumps of a session in order, behind the one at `prior`. Returns the seq of the last, or `prior`."""
    for seq, after in jumps:
        db.execute(SQL["insert_jump"], sealed(base + seq, after, prior))
        prior = seq
    return prior


def _push_undo(db: Connection, session: SessionRow, after: State, kind: str, version: int) -> int:
    """Insert the state before a change, and delete the oldest beyond ten. Returns how many there are."""
    before = session.state
    hidden = before.messages - after.messages
    db.execute(SQL["push_undo"], sealed(session.base + version, kind, after.head, hidden, *columns_of(before)))
    db.execute(SQL["drop_old_undo"], (*session.span, *session.span))
    return session.undo_steps + 1 - db.changes()
