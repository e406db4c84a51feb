"""Compaction of one session: planned in a read transaction, carried out in many short write transactions.

A plan stays valid while others change the session: an entry that no head, snapshot or undo step can reach stays out of
reach, because a head moves only to one of those, or forward. maintenance.py deletes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from everturn.backend import REMEMBERED
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.maintenance import DeletedRow, TimeSlice, delete_some, delete_undo_steps, split_row, sums
from everturn.backends.sqlite.packed_rows import earliest_start
from everturn.backends.sqlite.row_checksums import sealed, unsealed
from everturn.backends.sqlite.session_row import SessionRow, all_jumps, load, remembered_states, roots, store
from everturn.core.paths import Jump, Range, Reach, clip, minus, out_of, reach

SQL = statements.load("compaction.sql")
Chore: TypeAlias = tuple[str, str] | tuple[str, int, int]  # a statement with the ids of its rows, or a range of the log
CHUNK = 250  # rows by id in one chore
FORGETTING = ("forget_states", "delete_changes")


class CompactionPlan(msgspec.Struct, frozen=True, gc=False):
    """The chores of a compaction, in the order they must be done in."""

    number: int
    session_id: str
    life: str
    version: int
    chores: list[Chore]

    @property
    def base(self) -> int:
        return self.number << 32


class StepResult(msgspec.Struct, frozen=True, gc=False):
    """Result of one transaction: the chore to go on with, whether a row was changed, entries and bytes reclaimed.

    `is_stale`: the plan is not valid any more; make another.
    """

    following: int
    has_changed: bool
    entries: int = 0
    bytes: int = 0
    is_stale: bool = False


def drop_undo_steps(db: Connection, session_id: str, now: float) -> None:
    """Delete every undo step of the session. Its version stays. An absent session is left absent."""
    session = load(db, session_id, now)
    if session is not None:
        delete_undo_steps(db, session.number)
        store(db, msgspec.structs.replace(session, undo_steps=0))


def plan(db: Connection, session_id: str, now: float) -> CompactionPlan | None:
    """Plan which rows of a session can be reclaimed. None: there is no such session."""
    session = load(db, session_id, now)
    if session is None:
        return None
    jumps = all_jumps(db, session)
    needed = reach((state for state, _ in roots(db, session)), jumps)
    return CompactionPlan(
        session.number, session_id, session.life, session.version, [*_chores(db, session, jumps, needed)]
    )


def _chores(db: Connection, session: SessionRow, jumps: Sequence[Jump], needed: Reach) -> Iterator[Chore]:
    """Yield the chores. Versions that cannot be read afterwards are marked first, so that nobody returns to them."""
    old = {
        row_id
        for (row_id,) in db.execute(SQL["old_changes"], (session.base, session.base + session.version - REMEMBERED))
    }
    remembered = {row_id: state for row_id, state in remembered_states(db, session) if row_id not in old}
    lost = out_of(needed, [*remembered.values()], jumps)
    forgotten = [row_id for row_id, is_lost in zip(remembered, lost, strict=True) if is_lost]
    readable = [state for state, is_lost in zip(remembered.values(), lost, strict=True) if not is_lost]
    unreachable = minus([(1, session.last_seq)] if session.last_seq else [], needed.whole)
    yield from _by_id("forget_states", forgotten)
    yield from _by_id("delete_changes", sorted(old))
    for first, last in _stored(db, session, minus(unreachable, needed.summaries), summaries=True):
        yield "reclaim", first, last
    # Below a floor summaries are shown, and the rest is not: needed.summaries and needed.whole share nothing.
    for first, last in _stored(db, session, clip(needed.summaries, 1, session.last_seq), summaries=False):
        yield "reclaim_but_summaries", first, last
    # A version that can still be read needs its jumps, though it may be on a branch of which it shows nothing.
    on_the_way = {*needed.jumps, *reach(readable, jumps).jumps}
    yield from _by_id("delete_jumps", [session.base + jump[0] for jump in jumps if jump not in on_the_way])


def _by_id(statement: str, rows: Sequence[int]) -> Iterator[Chore]:
    for start in range(0, len(rows), CHUNK):
        yield statement, msgspec.json.encode(rows[start : start + CHUNK]).decode()


def _stored(db: Connection, session: SessionRow, ranges: Iterable[Range], *, summaries: bool) -> list[Range]:
    """Keep the ranges that hold a row to delete: most were emptied long ago."""
    wanted = msgspec.json.encode([(earliest_start(first), first, last) for first, last in ranges]).decode()
    return db.rows(SQL["stored_ranges"], (wanted, session.base, summaries))


def step(db: Connection, planned: CompactionPlan, at: int, now: float) -> StepResult:
    """Do chores from number `at` on, within one time slice."""
    session = load(db, planned.session_id, now)
    if session is None or session.life != planned.life:
        return StepResult(len(planned.chores), has_changed=False)
    time_slice = TimeSlice()
    gone: list[DeletedRow] = []
    changed, last_jump, is_stale = 0, session.last_jump, False
    while at < len(planned.chores) and time_slice.is_left(len(gone) + changed):
        chore = planned.chores[at]
        if len(chore) == 2:
            statement, rows = chore
            if statement in FORGETTING and _was_rolled_back(db, planned):
                # The rollback may have gone to a version that is about to be forgotten. Versions are marked before
                # anything is deleted, and nobody returns to a marked one: with this check, reclaiming is safe.
                is_stale = True
                break
            if statement == "forget_states":
                changed += _forget(db, rows)
            elif statement == "delete_jumps":
                last_jump = _delete_jumps(db, session, rows, last_jump)
                changed += 1
            else:
                db.execute(SQL[statement], (rows,))
                changed += db.changes()
            at += 1
        else:
            some, has_more = _reclaim(db, planned.number, chore)
            gone += some
            at += not has_more
    size, entries = sums(gone)
    if gone or last_jump != session.last_jump:
        store(db, msgspec.structs.replace(session, bytes=session.bytes - size, last_jump=last_jump))
    return StepResult(at, bool(gone or changed), entries, size, is_stale)


def _delete_jumps(db: Connection, session: SessionRow, rows: str, last_jump: int) -> int:
    """Delete jumps by id. The jump behind each then names the one before it. Returns the seq of the last one left."""
    for row in db.rows(SQL["load_jumps"], (rows,)):
        row_id, _, prior = unsealed(row, "the jump")
        db.execute(SQL["delete_jump"], (row_id,))
        behind = db.row(SQL["next_jump"], (row_id, session.span[1]))
        if behind is None:
            last_jump = prior
        else:
            behind_id, after, _ = unsealed(behind, "the jump")
            db.execute(SQL["relink_jump"], (*sealed(behind_id, after, prior)[2:], behind_id))
    return last_jump


def _forget(db: Connection, rows: str) -> int:
    """Mark versions that cannot be read any more, because entries that they show are to be deleted: head is NULL."""
    known = [unsealed(row, "the change") for row in db.execute(SQL["load_changes"], (rows,))]
    for change in known:
        *_, checksum = sealed(*change[:10], None, *change[11:])
        db.execute(SQL["forget_state"], (checksum, change[0]))
    return len(known)


def _was_rolled_back(db: Connection, planned: CompactionPlan) -> bool:
    since = planned.base + planned.version
    return db.value(SQL["rolled_back_since"], (since + 1, planned.base + 0xFFFFFFFF)) is not None


def _reclaim(db: Connection, number: int, chore: tuple[str, int, int]) -> tuple[list[DeletedRow], bool]:
    """Delete some rows of a range, after splitting those at its ends. Returns them, and whether there may be more."""
    what, first, last = chore
    split_row(db, number, first)
    split_row(db, number, last + 1)
    base = number << 32
    bounds = base + first, base + last
    return delete_some(db, *bounds, below=base + last + 1, summaries=what == "reclaim")
