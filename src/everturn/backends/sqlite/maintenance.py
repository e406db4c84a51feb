"""Maintenance: removes rows in steps. Each call is the work of one short transaction, repeated until all is done.

compaction.py decides which rows of a live session may go. Bodies are never decoded here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import apsw
import msgspec

from everturn.backends.sqlite import effects, leases, statements
from everturn.backends.sqlite.apply_change import insert_row
from everturn.backends.sqlite.connections import Connection, patiently
from everturn.backends.sqlite.packed_rows import MOST_LINES, cut_row, earliest_start
from everturn.backends.sqlite.session_row import UNREADABLE, from_columns, refuse_damaged_index, span
from everturn.core.paths import Range
from everturn.core.signal_exceptions import is_interruption
from everturn.model import Compaction

SQL = statements.load("maintenance.sql")
DeletedRow: TypeAlias = tuple[int, int]  # bytes and number of the entries of a deleted row
LONGEST = 0.004  # seconds that one transaction works; then it commits, and waiting writers go on
ROWS = 900  # most rows that one transaction deletes
STEP = 100  # most rows that one statement deletes
BYTES = 2**20  # after so many bytes, a statement deletes no further row
ERASED_FOR = 60.0  # seconds that rows of an erased session are left to the caller of erase, before others reap them
PAGES = 50  # given back to the file system by one statement
WAIT_FOR_READERS = 0.5  # seconds that erase waits for readers to leave the WAL
FASTEST_VACUUM = 400 * 2**20  # bytes a second: an upper bound of how fast a file is rewritten


class TimeSlice:
    """Time that one transaction may work: other writers wait for the lock no longer than that."""

    def __init__(self) -> None:
        self._until: float | None = None

    def is_left(self, rows: int = 0) -> bool:
        """Whether to go on after so many rows. The first time always: else a slow machine would never make progress."""
        if self._until is None:
            self._until = time.monotonic() + LONGEST
            return True
        return rows <= ROWS and time.monotonic() < self._until


def delete_some(
    db: Connection, first: int, last: int, *, below: int | None = None, summaries: bool = True
) -> tuple[list[DeletedRow], bool]:
    """Delete the next rows between two ids, about STEP or BYTES of them. Returns them, and whether there may be more.

    `below`: only rows that end before this id. `summaries`: whether summaries go too.
    """
    rows = db.rows(SQL["some_rows"], (first, last, below, summaries, STEP))
    gone: list[DeletedRow] = []
    size = 0
    for _, length, count in rows:
        entries = min(max(count, 1), MOST_LINES)
        gone.append((length - entries + 1, entries))
        size += length
        if size >= BYTES:
            rows = rows[: len(gone)]
            break
    if rows:
        db.execute(SQL["delete_rows"], (first, rows[-1][0], below, summaries))
    return gone, len(rows) == STEP or size >= BYTES


def split_row(db: Connection, number: int, seq: int) -> None:
    """Split the row that reaches across this seq, if there is one: a row then begins at it."""
    base = number << 32
    row = db.row(SQL["row_across"], (base + earliest_start(seq), base + seq))
    if row is not None:
        rewrite(db, number, row, [(row[0], seq - 1), (seq, row[0] + row[6] - 1)])


def rewrite(db: Connection, number: int, row: Sequence[Any], wanted: Iterable[Range]) -> None:
    """Replace a row by rows of these ranges of its entries. A row too damaged for that stays as it is."""
    parts = cut_row(row, wanted)
    if parts is not None:
        db.execute(SQL["delete_row"], ((number << 32) + row[0],))
        for part in parts:
            insert_row(db, number, part, row[5], row[1])


def delete_undo_steps(db: Connection, number: int) -> None:
    """Delete every undo step of a session: ten at most."""
    db.execute(SQL["delete_undo_steps"], span(number))


def sums(gone: Iterable[DeletedRow]) -> tuple[int, int]:
    """Add up bytes and entries of deleted rows."""
    return sum(size for size, _ in gone), sum(count for _, count in gone)


# --- sessions that end -----------------------------------------------------------------------------------------------


class Removal(msgspec.Struct, frozen=True, gc=False):
    """Counts of what one transaction removed of sessions that ended, and the numbers of those with rows left."""

    entries: int = 0
    bytes: int = 0
    snapshots: int = 0
    left: tuple[int, ...] = ()
    spared: bool = False

    def plus(self, other: Removal) -> Removal:
        """Add up two removals. `left` is that of the later one."""
        return Removal(
            self.entries + other.entries,
            self.bytes + other.bytes,
            self.snapshots + other.snapshots,
            other.left,
            self.spared or other.spared,
        )


def reap(db: Connection, now: float) -> Compaction:
    """Delete some rows of a session that ended, and its own row last. One step; zeros if there is none."""
    number = next((number for number, is_due in _ended(db, now) if is_due), None)
    if number is None:
        return Compaction(0, 0, 0)
    db.execute(SQL["end"], (number,))  # a session reaped in part must not come back if the clock is set back
    removed = remove(db, (number,))
    return Compaction(1, removed.entries, removed.bytes)


def _ended(db: Connection, now: float) -> Iterator[tuple[int, bool]]:
    """Yield numbers of sessions that seem to have ended, and whether their rows may go.

    A row that does not match its checksum does not count as expired.
    """
    yield from ((number, True) for (number,) in db.execute(SQL["some_ended"]))
    for row in db.execute(SQL["some_expired"], (now,)):
        try:
            yield row[0], row[3] == 1 or from_columns(row).number == row[0]
        except UNREADABLE as exc:
            if is_interruption(exc):
                raise
            yield row[0], False


def erase(db: Connection, session_id: str, life: str | None, now: float, version: int | None = None) -> Removal:
    """End the lives that Backend.erase names, so that no reader finds them, and do one step of removing their rows.

    SQLite overwrites deleted rows with zeros (secure_delete).
    """
    lives = tuple(number for (number,) in db.rows(SQL["lives_of"], (db.namespace, session_id, life, now, version)))
    for number in lives:
        db.execute(SQL["end_by_erasing"], (now + ERASED_FOR, number))
    spared = db.value(SQL["living"], (db.namespace, session_id)) is not None
    if not lives and not spared:
        refuse_damaged_index(db, session_id)
    if not spared:
        leases.forget(db, session_id)
    return Removal(spared=spared).plus(remove(db, lives))


def remove(db: Connection, lives: Sequence[int]) -> Removal:
    """Remove rows of sessions that ended, within one time slice; of each session its own row last."""
    time_slice = TimeSlice()
    removed = Removal(left=tuple(lives))
    for place, number in enumerate(lives):
        is_gone = False
        while not is_gone and time_slice.is_left(removed.entries):
            part, is_gone = _remove_some(db, number)
            removed = removed.plus(part)
        if not is_gone:
            return removed.plus(Removal(left=tuple(lives[place:])))
    return removed.plus(Removal())


def _remove_some(db: Connection, number: int) -> tuple[Removal, bool]:
    """Remove some rows of one table, the log first. Returns counts, and whether nothing is left."""
    low, high = span(number)
    gone, _ = delete_some(db, low, high)
    if gone:
        size, entries = sums(gone)
        return Removal(entries, size), False
    for statement in ("reap_changes", "reap_jumps"):
        db.execute(SQL[statement], (low, high, STEP))
        if db.changes():
            return Removal(), False
    db.execute(SQL["reap_snapshots"], (number, STEP))
    if snapshots := db.changes():
        return Removal(snapshots=snapshots), False
    for statement in ("reap_effects", "reap_links"):
        db.execute(effects.SQL[statement], (number, STEP))
        if db.changes():
            return Removal(), False
    delete_undo_steps(db, number)
    db.execute(SQL["delete_session"], (number,))
    return Removal(), True


def scrub(db: Connection) -> bool:
    """Remove the last copies of erased text: those in the WAL, and those that page splits left between rows.

    secure_delete does not reach the latter, so the file is rewritten (VACUUM). Returns False if that would take longer
    than the call may, if there is no room for it, or while a reader pins the WAL: the rows stay deleted all the same.

    Writers wait for all of it, because SQLite cannot do it in steps: incremental_vacuum moves pages with the bytes
    between their rows, and no statement overwrites these. The last half cannot be interrupted either. So it is not
    begun when the time left is far too short.
    """
    if not db.filename:
        return True
    try:
        if _size(db) > FASTEST_VACUUM * (db.patience.deadline - time.monotonic()):
            return False
        db.execute("PRAGMA temp_store = FILE")  # the copy may be larger than memory; it has no erased text
        db.execute("VACUUM")
        # Writers wait while this waits for readers.
        db.patience.deadline = min(db.patience.deadline, time.monotonic() + WAIT_FOR_READERS)
        patiently(lambda: db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE), db.patience.deadline)
    except apsw.Error:
        return False
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
    return True


def _size(db: Connection) -> int:
    """Count the bytes of the pages that are in use."""
    used: int = db.value("PRAGMA page_count") - db.value("PRAGMA freelist_count")
    return used * int(db.value("PRAGMA page_size"))


def give_back_pages(db: Connection) -> bool:
    """Return some free pages to the file system. True: there may be more."""
    time_slice = TimeSlice()
    while time_slice.is_left():
        db.execute(f"PRAGMA incremental_vacuum({PAGES})").fetchall()
        if not db.value("PRAGMA freelist_count"):
            return False
    return True
