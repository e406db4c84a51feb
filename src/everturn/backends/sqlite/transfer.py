"""Exports and imports of sessions, for copies between backends: each step inside one transaction.

Staged rows lie in the tables under a session number of their own, which no read looks at. One update of a row makes
them visible. transfer/copy.py decides which step comes when.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from everturn.backend import ChangeOutcome, Status
from everturn.backends.sqlite import apply_change, effects, leases, session_row, statements
from everturn.backends.sqlite.apply_change import LAST_SEQ
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.maintenance import delete_undo_steps
from everturn.backends.sqlite.packed_rows import MOST_LINES, earliest_start, entries_within
from everturn.backends.sqlite.row_checksums import column_sum, of_entries, sealed, seconds
from everturn.backends.sqlite.session_row import SessionRow, change_columns, columns_of, state_from, store
from everturn.core.facts import encode_facts
from everturn.errors import MemoryStoreBackendError
from everturn.transfer.protocol import STAGED_FOR, Arrival, Mark, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EffectPart, EntryPart, Outline, Portion, SnapshotPart, UndoPart

SQL = statements.load("transfer.sql")


# --- out -------------------------------------------------------------------------------------------------------------


def outline(db: Connection, session_id: str, now: float) -> Outline | None:
    """Read the session's present life without its entries and changes (Portable.outline); None if there is none."""
    session = session_row.load(db, session_id, now)
    if session is None:
        return None
    return Outline(
        session_id,
        session.life,
        session.version,
        _call_of(db, session.number, session.version),
        session.last_seq,
        session.state,
        session.created_at,
        session.changed_at,
        now,
        session.ttl,
        session.expires_at,
        session.dimension,
        session.forked_from,
        tuple(reversed(session_row.all_jumps(db, session))),
        tuple(_snapshots(db, session)),
        tuple(
            UndoPart(step.id & 0xFFFFFFFF, step.kind, step.moved_to, step.hidden, step.before)
            for step in session_row.undo_steps(db, session)
        ),
        tuple(map(EffectPart.of, effects.effects_of(db, session))),
        session.facts,
    )


def _snapshots(db: Connection, session: SessionRow) -> Iterator[SnapshotPart]:
    for name, _, label, version, *state, created_at in session_row.snapshots(db, session):
        yield SnapshotPart(name, label, version, created_at, state_from(state))


def _call_of(db: Connection, number: int, version: int) -> bytes:
    """Load the call id of the change that made a version; empty if it is not remembered."""
    row = db.row(SQL["load_change"], ((number << 32) + version,))
    return b"" if row is None else change_columns(row, number << 32)[2]


def portion(db: Connection, request: PortionRequest, now: float) -> Portion | None:
    """Read the next rows of a life (Portable.portion); None if it has ended."""
    session = session_row.load(db, request.session_id, now)
    if session is None or session.life != request.life:
        return None
    entries = tuple(_entries(db, session.base, request))
    if request.is_filled_by(entries):
        return Portion(entries, is_last=False)
    remembered = tuple(_changes(db, session.base, request))
    return Portion(entries, remembered, is_last=len(remembered) < request.changes)


def _entries(db: Connection, base: int, request: PortionRequest) -> Iterator[EntryPart]:
    first, last = request.after_seq + 1, request.last_seq
    rows = db.execute(
        SQL["some_entries"],
        (base + earliest_start(first), base + last, request.entries + MOST_LINES, first, last, base),
    )
    size = 0
    for row in islice(entries_within(rows), request.entries):
        yield EntryPart.of(row)
        size += len(row[3])
        if size >= request.bytes:
            return


def _changes(db: Connection, base: int, request: PortionRequest) -> Iterator[ChangePart]:
    bounds = (base + request.after_version + 1, base + request.last_version, request.changes)
    for row in db.execute(SQL["some_changes"], bounds):
        version, kind, call, key, content, first_seq, count, *others = change_columns(row, base)
        snapshot_id, label, created_at, head, *rest = others
        state = state_from((0 if head is None else head, *rest))
        known = (version, kind, first_seq, count, created_at, call, state, head is not None)
        yield ChangePart(*known, key, content, snapshot_id, label)


# --- in --------------------------------------------------------------------------------------------------------------


def stage(db: Connection, request: Staging, now: float) -> str | None:
    """Write rows where no reader sees them (Portable.stage); None if those staged before have been removed."""
    name = (db.namespace, request.session_id)
    size = 0
    if request.handle is None:
        db.execute(SQL["begin_staged"], (*name, now, now, db.lives_from + STAGED_FOR))
        number = db.last_insert_rowid()
    else:
        number = int(request.handle)
        found = db.value(SQL["load_staged"], (number, *name, now))
        if found is None:
            return None
        size = found
    size += _write_rows(db, number, request.portion)
    db.execute(SQL["extend_staged"], (size, db.lives_from + STAGED_FOR, number))
    return str(number)


def restore(db: Connection, arrival: Arrival, now: float) -> ChangeOutcome:
    """Publish the session in one step (Portable.restore)."""
    outline = arrival.outline
    name = (db.namespace, outline.session_id)
    session = session_row.load(db, outline.session_id, now)
    if _mark_of(db, session) != arrival.onto:
        return ChangeOutcome(Status.EXISTS, *((session.life, session.version) if session else ()))
    place = _place_for(db, arrival, session, now)
    if place is None:
        return ChangeOutcome(Status.MOVED)
    if any(db.row(SQL["snapshot_elsewhere"], (snapshot.id, *name)) for snapshot in outline.snapshots):
        return ChangeOutcome(Status.SNAPSHOT_TAKEN)
    # Nothing was written up to here. A life that is replaced, or has expired, may still hold the ids of snapshots.
    db.execute(SQL["forget_snapshots"], name)
    number = place.number
    if session is not None and number == session.number:
        delete_undo_steps(db, number)
    else:
        db.execute(apply_change.SQL["end_session"], name)
    if not number:
        db.execute(SQL["begin_staged"], (*name, now, now, now))
        number = db.last_insert_rowid()
    size = place.bytes + _write_rows(db, number, arrival.portion)
    last_jump = _write_pointers(db, number, outline, place)
    effects.replace(db, number, [part.row for part in outline.effects])
    db.execute(SQL["publish"], (number,))
    leases.bind(db, outline.session_id, outline.life)
    expires_at = None if arrival.expires_in is None else db.lives_from + arrival.expires_in
    known = (outline.life, outline.version, outline.last_seq, outline.state, size, outline.dimension, outline.ttl)
    times = (expires_at, outline.created_at, outline.changed_at)
    counts = (len(outline.snapshots), len(outline.undo_steps), last_jump)
    found_by = encode_facts(outline.facts)
    row = SessionRow(number, outline.session_id, *known, *times, outline.forked_from, *counts, found_by)
    store(db, msgspec.structs.replace(row, effects=len(outline.effects)), facts=True)
    return ChangeOutcome(Status.APPLIED, outline.life, outline.version)


def _mark_of(db: Connection, session: SessionRow | None) -> Mark | None:
    if session is None:
        return None
    return Mark(session.life, session.version, _call_of(db, session.number, session.version))


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Session number that an arrival is written under (0: a new one), and bytes, last seq and last jump that it has."""

    number: int
    bytes: int = 0
    last_seq: int = 0
    last_jump: int = 0


def _place_for(db: Connection, arrival: Arrival, session: SessionRow | None, now: float) -> _Place | None:
    """Find the session number to write under. None: the staged rows have been removed."""
    _refuse_too_long(arrival.outline.last_seq, arrival.outline.version)
    if arrival.handle is not None:
        number = int(arrival.handle)
        staged = db.value(SQL["load_staged"], (number, db.namespace, arrival.outline.session_id, now))
        return None if staged is None else _Place(number, staged)
    return _Place(0) if session is None else _Place(session.number, session.bytes, session.last_seq, session.last_jump)


def _refuse_too_long(*numbers: int) -> None:
    """Raise MemoryStoreBackendError for a seq or version that does not fit into a row's id: it would be another
    session's."""
    if any(number > LAST_SEQ for number in numbers):
        text = f"a session in SQLite has at most {LAST_SEQ:,} entries, and as many changes; fork it, and copy the fork"
        raise MemoryStoreBackendError(text, outcome="not_written")


def _write_rows(db: Connection, number: int, portion: Portion) -> int:
    """Write entries and changes under a session's number. Returns the bytes of the bodies that are new."""
    base = number << 32
    size = 0
    _refuse_too_long(*(part.seq for part in portion.entries[-1:]), *(part.version for part in portion.changes[-1:]))
    for entry in portion.entries:
        columns = column_sum(entry.seq, entry.turn, 1, entry.created_at)
        checksum = of_entries(entry.checksum, number, columns)
        row = (base + entry.seq, entry.turn, entry.kind, entry.created_at, checksum, entry.body)
        db.execute(SQL["insert_entry"], row)
        size += db.changes() and entry.size
    for change in portion.changes:
        head, *rest = columns_of(change.state)
        db.execute(
            SQL["insert_change"],
            sealed(
                *(base + change.version, change.kind, change.call, change.key, change.content),
                *(change.first_seq, change.count, change.snapshot_id, change.label, seconds(change.created_at)),
                *(head if change.readable else None, *rest),
            ),
        )
    return size


def _write_pointers(db: Connection, number: int, outline: Outline, place: _Place) -> int:
    """Write jumps, snapshots and undo steps. Jumps up to the last seq are there. Returns the seq of the last."""
    base = number << 32
    new = [(seq, after) for seq, after in outline.jumps if seq > place.last_seq]
    last_jump = apply_change.insert_jumps(db, base, new, place.last_jump)
    for snapshot in outline.snapshots:
        known = (snapshot.id, number, snapshot.label, snapshot.version, *columns_of(snapshot.state))
        db.execute(apply_change.SQL["insert_snapshot"], sealed(*known, seconds(snapshot.created_at)))
    for step in outline.undo_steps:
        step_facts = (base + step.version, step.kind, step.moved_to, step.hidden)
        db.execute(apply_change.SQL["push_undo"], sealed(*step_facts, *columns_of(step.before)))
    return last_jump
