"""Compaction of one session: planned in a read transaction, carried out in many short write transactions.

A plan stays good while others change the session: what no head, snapshot or undo step can reach is out of reach for
good, as a head only moves to one of those, or on. How rows are deleted is in maintenance.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from everturn.backend import REMEMBERED
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.maintenance import SQL, Gone, Share, delete_some, part, roots, sums
from everturn.backends.sqlite.packed_rows import look_from
from everturn.backends.sqlite.session_row import Session, jumps_to, load, state_from
from everturn.core.paths import Jump, Range, Reach, clip, minus, out_of, reach

Chore: TypeAlias = tuple[str, str] | tuple[str, int, int]  # a statement for rows by id, or a range of the log
CHUNK = 250  # rows by id that one chore is about
FORGETTING = ("forget_states", "delete_changes")


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done to a session, in this order."""

    no: int
    life: str
    version: int
    chores: list[Chore]

    @property
    def base(self) -> int:
        return self.no << 32


class Step(msgspec.Struct, frozen=True, gc=False):
    """What one transaction did of a plan: which chore is next, whether a row was touched, and what was reclaimed.

    `is_stale`: the plan is not good any more; make another.
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
        db.execute(SQL["delete_undo_steps"], session.span)


def plan(db: Connection, session_id: str, now: float) -> Plan | None:
    """What is to be reclaimed of a session. None: there is none."""
    session = load(db, session_id, now)
    if session is None:
        return None
    jumps = jumps_to(db, session.no, session.last_seq)
    needed = reach((state for state, _ in roots(db, session.no)), jumps)
    return Plan(session.no, session.life, session.version, [*_chores(db, session, jumps, needed)])


def _chores(db: Connection, session: Session, jumps: Sequence[Jump], needed: Reach) -> Iterator[Chore]:
    """Versions that cannot be read afterwards come first: marked, nobody returns to what is reclaimed behind them."""
    old = {
        row_id
        for (row_id,) in db.execute(SQL["old_changes"], (session.base, session.base + session.version - REMEMBERED))
    }
    remembered = {
        row_id: state_from(columns)
        for *columns, _, row_id in db.execute(SQL["list_remembered"], session.span)
        if row_id not in old
    }
    lost = out_of(needed, [*remembered.values()], jumps)
    forgotten = [row_id for row_id, is_lost in zip(remembered, lost, strict=True) if is_lost]
    readable = [state for state, is_lost in zip(remembered.values(), lost, strict=True) if not is_lost]
    unreachable = minus([(1, session.last_seq)] if session.last_seq else [], needed.whole)
    yield from _by_id("forget_states", forgotten)
    yield from _by_id("delete_changes", sorted(old))
    for first, last in _stored(db, session, minus(unreachable, needed.summaries), summaries=True):
        yield "reclaim", first, last
    # Summaries that are shown where the rest is not: needed.summaries has nothing of needed.whole.
    for first, last in _stored(db, session, clip(needed.summaries, 1, session.last_seq), summaries=False):
        yield "reclaim_but_summaries", first, last
    # A version that can still be read needs its jumps, though it may be on a branch of which it shows nothing.
    on_the_way = {*needed.jumps, *reach(readable, jumps).jumps}
    yield from _by_id("delete_jumps", [session.base + jump[0] for jump in jumps if jump not in on_the_way])


def _by_id(statement: str, rows: Sequence[int]) -> Iterator[Chore]:
    for start in range(0, len(rows), CHUNK):
        yield statement, msgspec.json.encode(rows[start : start + CHUNK]).decode()


def _stored(db: Connection, session: Session, ranges: Iterable[Range], *, summaries: bool) -> list[Range]:
    """Those of the ranges in which there is something to delete: most were emptied long ago."""
    wanted = msgspec.json.encode([(look_from(first), first, last) for first, last in ranges]).decode()
    return db.rows(SQL["stored_ranges"], (wanted, session.base, summaries))


def step(db: Connection, planned: Plan, at: int) -> Step:
    """Do chores from number `at` on, in a share of time."""
    if db.value(SQL["is_living"], (planned.no, planned.life)) is None:
        return Step(len(planned.chores), has_changed=False)
    share = Share()
    gone: list[Gone] = []
    changed, is_stale = 0, False
    while at < len(planned.chores) and share.is_left(len(gone) + changed):
        chore = planned.chores[at]
        if len(chore) == 2:
            statement, rows = chore
            if statement in FORGETTING and _went_back(db, planned):
                # Was it to a version that is about to be forgotten? Only snapshots can be rolled back to, so far; where
                # versions can, too, this look and the marks that come first are what makes reclaiming safe: once a
                # version is marked, nobody returns to it.
                is_stale = True
                break
            db.execute(SQL[statement], (rows,))
            changed += db.changes()
            at += 1
        else:
            some, has_more = _reclaim(db, planned.base, chore)
            gone += some
            at += not has_more
    size, entries = sums(gone)
    if gone:
        db.execute(SQL["shrink_session"], (size, planned.no))
    return Step(at, bool(gone or changed), entries, size, is_stale)


def _went_back(db: Connection, planned: Plan) -> bool:
    since = planned.base + planned.version
    return db.value(SQL["went_back"], (since + 1, planned.base + 0xFFFFFFFF)) is not None


def _reclaim(db: Connection, base: int, chore: tuple[str, int, int]) -> tuple[list[Gone], bool]:
    """Delete some rows of a range, and of the rows at its ends what is in it. Also whether there may be more."""
    what, first, last = chore
    part(db, base, first)
    part(db, base, last + 1)
    bounds = base + first, base + last
    return delete_some(db, *bounds, below=base + last + 1, summaries=what == "reclaim")
