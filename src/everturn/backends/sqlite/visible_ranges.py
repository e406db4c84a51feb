"""Finds the ranges of the log that a read shows: the path, cut to its bounds, without what trim and clear hide.

Statements here find seqs only; reads.py fetches the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.packed_rows import earliest_start
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.core.paths import Range, State, clip
from everturn.model import SUMMARY

SQL = statements.load("visible_ranges.sql")


class VisibleRanges(msgspec.Struct, frozen=True, gc=False):
    """The seqs that a state shows within bounds: every entry of `must`, and of `below` the summaries alone."""

    must: list[Range]
    below: list[Range]


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """First and last seq of the part of the log that a read asks for."""

    first: int
    last: int


def visible_ranges(
    db: Connection, base: int, walk: PathWalk, bounds: Bounds, state: State, kind: str | None
) -> VisibleRanges:
    """Find the ranges that the state shows. The path is walked no further down than something is shown."""
    first = max(bounds.first, state.floor + 1)
    must = clip(walk.down_to(first), first, bounds.last) if first <= bounds.last else []
    if not state.floor:
        return VisibleRanges(must, [])
    below = _summaries_below(db, base, walk, bounds, state) if kind in (None, SUMMARY) else []
    return VisibleRanges(_kept(bounds, state) + must, below)


def _kept(bounds: Bounds, state: State) -> list[Range]:
    """Find the system messages that a trim kept, each as a range of one."""
    first = max(bounds.first, state.cleared + 1)
    return [(seq, seq) for seq in state.kept if first <= seq <= bounds.last]


def _summaries_below(db: Connection, base: int, walk: PathWalk, bounds: Bounds, state: State) -> list[Range]:
    """Find the ranges below the floor down to the lowest summary; none if there is no summary, as in most sessions."""
    first, last = max(bounds.first, state.cleared + 1), min(bounds.last, state.floor)
    if first > last:
        return []
    refuse_misplaced_summaries(db, base + first, base + last)
    lowest = db.value(SQL["lowest_summary"], (base + first, base + last))
    return [] if lowest is None else clip(walk.down_to(lowest - base), lowest - base, last)


def refuse_misplaced_summaries(db: Connection, first: int, last: int) -> None:
    """Raise ValueError if a summary between these ids may not be found, because its index is damaged there.

    Below the floor nothing else tells how many there are. Where pages have checksums, it is enough to see that the ends
    of the index are where they should be; else it is compared with the log.
    """
    is_damaged = db.row(SQL["misplaced_summary"], (first, last)) is not None
    if not is_damaged and not page_checksums.are_kept(db):
        is_damaged = db.rows(SQL["summaries_by_index"], (first, last)) != db.rows(
            SQL["summaries_in_log"], (first, last)
        )
    if is_damaged:
        raise ValueError("summaries may be missing: the index of kinds is damaged where they should be")


def start_of_latest(db: Connection, base: int, walk: PathWalk, bounds: Bounds, state: State, limit: int) -> int | None:
    """Find the seq of the `limit`-th latest message that is shown; None if there are no more than `limit`."""
    seqs: list[int] = []
    lowest = max(bounds.first, state.floor + 1)
    for start, end in walk.back():
        first, last = max(start, lowest), min(end, bounds.last)
        if first <= last:
            places = (base + max(start, earliest_start(first)), base + last, limit + 1 - len(seqs))
            for row_id, count in db.execute(SQL["latest_messages"], places):
                seq = row_id - base
                seqs += range(min(seq + count - 1, last), max(seq, first) - 1, -1)
                if len(seqs) > limit:
                    return seqs[limit - 1]
        if start <= lowest:
            break
    seqs += (seq for seq, _ in reversed(_kept(bounds, state)))
    return seqs[limit - 1] if len(seqs) > limit else None


def ranges_as_json(ranges: Sequence[Range], path: Sequence[Range]) -> str:
    """Write ranges as the JSON parameter of a statement: for each where to look from, its first and its last seq."""
    starts = {first for first, _ in path}  # most begin there, and a search for each would be half of a read of many
    found = [(first if first in starts else earliest_start(first, path), first, last) for first, last in ranges]
    return msgspec.json.encode(found).decode()
