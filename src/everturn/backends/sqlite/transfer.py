"""Exports and imports of sessions, for copies between backends: each step inside one transaction.

Staged rows lie in the tables under a session number of their own, which no read looks at. One update of a row makes
them visible. transfer/copy.py decides which step comes when.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from everturn.backend import ChangeOutcome, Status
from everturn.backends.sqlite import apply_change, session_row, statements
from everturn.backends.sqlite.apply_change import LAST_SEQ
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.maintenance import delete_undo_steps
from everturn.backends.sqlite.packed_rows import MOST_LINES, earliest_start, entries_within
from everturn.backends.sqlite.session_row import SessionRow, columns_of, span, state_from
from everturn.errors import MemoryStoreBackendError
from everturn.transfer.protocol import STAGED_FOR, Arrival, Mark, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EntryPart, Outline, Portion, SnapshotPart, UndoPart

SQL = statements.load("transfer.sql")


# --- out -------------------------------------------------------------------------------------------------------------


def outline(db: Connection, session_id: str, now: float) -> Outline | None:
    """Read the session's present life without its entries and changes (Portable.outline); None if there is none."""
    session = session_row.load(db, session_id, now)
    if session is None:
        return None
    row = db.row(SQL["load_outline"], (session.no,))
    no, life, version, last_seq, created_at, changed_at, ttl, expires_at, dimension, forked_from, *columns = row
    return Outline(
        session_id,
        life,
        version,
        _call_of(db, no, version),
        last_seq,
        state_from(columns),
        created_at,
        changed_at,
        now,
        ttl,
        expires_at,
        dimension,
        forked_from,
        tuple(reversed(session_row.jumps_to(db, no, last_seq))),
        tuple(_snapshots(db, no)),
        tuple(_undo_steps(db, no)),
    )


def _snapshots(db: Connection, no: int) -> Iterator[SnapshotPart]:
    for name, label, version, created_at, *state in db.execute(SQL["list_snapshots"], (no,)):
        yield SnapshotPart(name, label, version, created_at, state_from(state))


def _undo_steps(db: Connection, no: int) -> Iterator[UndoPart]:
    for version, kind, moved_to, hidden, *state in db.execute(SQL["list_undo_steps"], span(no)):
        yield UndoPart(version, kind, moved_to, hidden, state_from(state))


def _call_of(db: Connection, no: int, version: int) -> bytes:
    """Load the call id of the change that made a version; empty if it is not remembered."""
    call: bytes | None = db.value(SQL["load_call"], ((no << 32) + version,))
    return call or b""


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
        SQL["some_entries"], (base + earliest_start(first), base + last, request.entries + MOST_LINES, first, last)
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
        version, kind, first_seq, count, created_at, call, key, content, snapshot_id, label, *state, readable = row
        yield ChangePart(
            *(version, kind, first_seq, count, created_at, call, state_from(state), bool(readable)),
            *(key, content, snapshot_id, label),
        )


# --- in --------------------------------------------------------------------------------------------------------------


def stage(db: Connection, request: Staging, now: float) -> str | None:
    """Write rows where no reader sees them (Portable.stage); None if those staged before have been removed."""
    name = (db.namespace, request.session_id)
    size = 0
    if request.handle is None:
        db.execute(SQL["begin_staged"], (*name, now, now, db.lives_from + STAGED_FOR))
        no = db.last_insert_rowid()
    else:
        no = int(request.handle)
        found = db.value(SQL["load_staged"], (no, *name, now))
        if found is None:
            return None
        size = found
    size += _write_rows(db, no, request.portion)
    db.execute(SQL["extend_staged"], (size, db.lives_from + STAGED_FOR, no))
    return str(no)


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
    no = place.no
    if session is not None and no == session.no:
        delete_undo_steps(db, no)
    else:
        db.execute(apply_change.SQL["end_session"], name)
    if not no:
        db.execute(SQL["begin_staged"], (*name, now, now, now))
        no = db.last_insert_rowid()
    size = place.bytes + _write_rows(db, no, arrival.portion)
    _write_pointers(db, no, outline, place.last_seq)
    expires_at = None if arrival.expires_in is None else db.lives_from + arrival.expires_in
    db.execute(
        SQL["publish"],
        (
            *(outline.life, outline.version, outline.last_seq, outline.created_at, outline.changed_at),
            *(outline.ttl, expires_at, outline.dimension, outline.forked_from),
            *(*columns_of(outline.state), size, no),
        ),
    )
    return ChangeOutcome(Status.APPLIED, outline.life, outline.version)


def _mark_of(db: Connection, session: SessionRow | None) -> Mark | None:
    if session is None:
        return None
    return Mark(session.life, session.version, _call_of(db, session.no, session.version))


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Session number that an arrival is written under (0: a new one), and the bytes and last seq it has already."""

    no: int
    bytes: int
    last_seq: int


def _place_for(db: Connection, arrival: Arrival, session: SessionRow | None, now: float) -> _Place | None:
    """Find the session number to write under. None: the staged rows have been removed."""
    _refuse_too_long(arrival.outline.last_seq, arrival.outline.version)
    if arrival.handle is not None:
        no = int(arrival.handle)
        staged = db.value(SQL["load_staged"], (no, db.namespace, arrival.outline.session_id, now))
        return None if staged is None else _Place(no, staged, 0)
    return _Place(0, 0, 0) if session is None else _Place(session.no, session.bytes, session.last_seq)


def _refuse_too_long(*numbers: int) -> None:
    """Raise MemoryStoreBackendError for a seq or version that does not fit into a row's id: it would be another
    session's."""
    if any(number > LAST_SEQ for number in numbers):
        text = f"a session in SQLite has at most {LAST_SEQ:,} entries, and as many changes; fork it, and copy the fork"
        raise MemoryStoreBackendError(text, outcome="not_written")


def _write_rows(db: Connection, no: int, portion: Portion) -> int:
    """Write entries and changes under a session's number. Returns the bytes of the bodies that are new."""
    base = no << 32
    size = 0
    _refuse_too_long(*(part.seq for part in portion.entries[-1:]), *(part.version for part in portion.changes[-1:]))
    for entry in portion.entries:
        row = (base + entry.seq, entry.turn, entry.kind, entry.created_at, entry.checksum, entry.body)
        db.execute(SQL["insert_entry"], row)
        size += db.changes() and entry.size
    for change in portion.changes:
        head, *rest = columns_of(change.state)
        db.execute(
            SQL["insert_change"],
            (
                *(base + change.version, change.kind, change.call, change.key, change.content),
                *(change.first_seq, change.count, change.snapshot_id, change.label, change.created_at),
                *(head if change.readable else None, *rest),
            ),
        )
    return size


def _write_pointers(db: Connection, no: int, outline: Outline, last_seq: int) -> None:
    """Write jumps, snapshots and undo steps. Jumps up to `last_seq` are there already."""
    base = no << 32
    for seq, after in outline.jumps:
        if seq > last_seq:
            db.execute(apply_change.SQL["insert_jump"], (base + seq, after))
    for snapshot in outline.snapshots:
        facts = (snapshot.id, no, snapshot.label, snapshot.version)
        db.execute(apply_change.SQL["insert_snapshot"], (*facts, *columns_of(snapshot.state), snapshot.created_at))
    for step in outline.undo_steps:
        before = columns_of(step.before)
        db.execute(apply_change.SQL["push_undo"], (base + step.version, step.kind, step.moved_to, step.hidden, *before))
