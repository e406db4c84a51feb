"""Keeping house: reclaiming what nothing can reach, reaping what expired, erasing. Each call is one transaction.

It decides what may go from the states a session can return to, and never looks into a body.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import apsw
import msgspec

from everturn.backend import REMEMBERED, Erasure
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.changes import insert
from everturn.backends.sqlite.connections import Connection, patiently
from everturn.backends.sqlite.runs import look_from, parts
from everturn.backends.sqlite.sessions import Session, jumps_to, load, span, state_from
from everturn.model import Compaction, ErasureReceipt
from everturn.rules import Jump, Range, Reach, State, clip, minus, reach

SQL = statements.load("upkeep.sql")
Gone: TypeAlias = tuple[int, int]  # of a row that was deleted: the bytes of its entries, and how many they were
STEP = 1000  # rows deleted in one transaction: other writers wait no longer than for that
PATIENCE = 0.5  # seconds that erase waits for readers to leave the WAL


def roots(db: Connection, no: int) -> list[tuple[State, str]]:
    """Every state the session can return to, with what to call it."""
    rows = db.execute(SQL["list_roots"], {"no": no})
    return [(state_from(columns), name) for *columns, name in rows]


def compact(db: Connection, session_id: str, now: float) -> Compaction:
    """One step: forget old changes, then delete up to STEP entries that no root shows."""
    session = load(db, session_id, now)
    if session is None:
        return Compaction(0, 0, 0)
    db.execute(SQL["reap_changes"], (session.base, session.base + max(0, session.version - REMEMBERED), STEP))
    if db.changes() == STEP:
        return Compaction(1, 0, 0)
    jumps = jumps_to(db, session.no, session.last_seq)
    needed = reach((state for state, _ in roots(db, session.no)), jumps)
    everything = [(1, session.last_seq)] if session.last_seq else []
    unreachable = minus(everything, needed.whole)
    if unreachable:
        _forget_states(db, session, jumps, needed)
    gone: list[Gone] = []
    for first, last in minus(unreachable, needed.summaries):
        gone += reclaim(db, "reclaim", session.base, first, last, STEP - len(gone))
    for first, last in clip_all(unreachable, needed.summaries):
        gone += reclaim(db, "reclaim_but_summaries", session.base, first, last, STEP - len(gone))
    size, entries = _sums(gone)
    if gone:
        db.execute(SQL["shrink_session"], (size, session.no))
    return Compaction(1 if gone else 0, entries, size)


def reclaim(db: Connection, statement: str, base: int, first: int, last: int, limit: int) -> list[Gone]:
    """Delete up to `limit` rows of a range (-1: all), and of the rows at its ends what is in it."""
    if not limit:
        return []
    part(db, base, first)
    part(db, base, last + 1)
    return db.rows(SQL[statement], (base + first, base + last, limit))


def part(db: Connection, base: int, seq: int) -> None:
    """Make a row begin at this seq, if one reaches across it."""
    row = db.row(SQL["row_across"], (base + look_from(seq), base + seq))
    if row is not None:
        rewrite(db, base, row, [(row[0], seq - 1), (seq, row[0] + row[6] - 1)])


def rewrite(db: Connection, base: int, row: Sequence[Any], wanted: Iterable[Range]) -> None:
    """Leave these ranges of a row's entries, each in a row of its own. (One damaged beyond that stays as it is.)"""
    runs = parts(row, wanted)
    if runs is not None:
        db.execute(SQL["delete_row"], (base + row[0],))
        for run in runs:
            insert(db, base, run, row[5], row[1])


def _sums(gone: Iterable[Gone]) -> tuple[int, int]:
    return sum(size for size, _ in gone), sum(count for _, count in gone)


def clip_all(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """The parts of `ranges` that stand in `others` too."""
    return [part for first, last in others for part in clip(ranges, first, last)]


def _forget_states(db: Connection, session: Session, jumps: Sequence[Jump], needed: Reach) -> None:
    """A remembered version that shows what is about to go can no longer be read: say so, in the same transaction."""
    gone: dict[State, bool] = {}  # many versions share a state
    for *columns, _, row_id in db.rows(SQL["list_remembered"], session.span):
        state = state_from(columns)
        if state not in gone:
            shown = reach([state], jumps)
            gone[state] = bool(
                minus(shown.whole, needed.whole) or minus(minus(shown.summaries, needed.whole), needed.summaries)
            )
        if gone[state]:
            db.execute(SQL["forget_state"], (row_id,))


def reap(db: Connection, now: float) -> Compaction:
    """One step: delete up to STEP rows of a session that ended, and the session when nothing else is left of it."""
    no = db.value(SQL["some_ended"], (now,))
    if no is None:
        return Compaction(0, 0, 0)
    db.execute(SQL["end"], (no,))  # what is reaped in part must not come back, should the clock be set back
    low, high = span(no)
    gone: list[Gone] = db.rows(SQL["remove"], (low, high, STEP))
    if len(gone) < STEP:
        db.execute(SQL["reap_changes"], (low, high, STEP))
        if db.changes() < STEP:
            _delete_session(db, no)
    size, entries = _sums(gone)
    return Compaction(1, entries, size)


def erase(db: Connection, session_id: str, life: str | None, now: float) -> Erasure:
    """Delete every row of the lives that Backend.erase names. (secure_delete overwrites them with zeros.)"""
    entries = snapshots = size = 0
    for (no,) in db.rows(SQL["lives_of"], (db.namespace, session_id, life, now)):
        low, high = span(no)
        for length, count in db.execute(SQL["remove"], (low, high, -1)):
            entries += count
            size += length
        db.execute(SQL["reap_changes"], (low, high, -1))
        snapshots += _delete_session(db, no)
    receipt = ErasureReceipt(session_id, entries, snapshots, size, complete=False)
    return Erasure(receipt, spared=db.value(SQL["living"], (db.namespace, session_id)) is not None)


def _delete_session(db: Connection, no: int) -> int:
    """Delete the small rows of a session. Returns how many snapshots it had."""
    low, high = span(no)
    db.execute(SQL["delete_jumps"], (low, high))
    db.execute(SQL["delete_undo_steps"], (low, high))
    db.execute(SQL["delete_snapshots"], (no,))
    snapshots = db.changes()
    db.execute(SQL["delete_session"], (no,))
    return snapshots


def scrub(receipt: ErasureReceipt, db: Connection) -> ErasureReceipt:
    """Remove the last copies of erased text: those in the WAL, and those that page splits left between rows.

    secure_delete does not know of the latter, so the file is written anew. Incomplete if that takes longer than the
    call may, if there is no room for it, or while a reader needs what is in the WAL: what was deleted stays so.
    """
    if not db.filename:
        return msgspec.structs.replace(receipt, complete=True)
    try:
        db.execute("PRAGMA temp_store = FILE")  # the copy may be larger than memory; of what is erased it has nothing
        db.execute("VACUUM")
        # Writers wait while this waits for readers.
        db.patience.deadline = min(db.patience.deadline, time.monotonic() + PATIENCE)
        patiently(lambda: db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE), db.patience.deadline)
    except apsw.Error:
        return receipt
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
    return msgspec.structs.replace(receipt, complete=True)


def give_back_pages(db: Connection) -> bool:
    """Return some free pages to the file system. True: there are more."""
    db.execute(f"PRAGMA incremental_vacuum({STEP})").fetchall()
    return bool(db.value("PRAGMA freelist_count"))
