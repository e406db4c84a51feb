"""Finds the ranges of the log that a read shows: the path, cut to its bounds, without entries that trim or clear hid.

Statements here find seqs only; log_rows.py fetches the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.backend import FRONT_ENTRIES, FRONT_SUMMARIES
from everturn.backends.sqlite import page_checksums, statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.packed_rows import MOST_LINES, earliest_start, unpacked
from everturn.backends.sqlite.path_walk import PathWalk
from everturn.core.codec import EntryRow
from everturn.core.paths import Range, State, clip

SQL = statements.load("visible_ranges.sql")


class VisibleRanges(msgspec.Struct, frozen=True, gc=False):
    """The seqs of which a state shows every entry, in order. (Below the floor it shows summaries, too.)

    Each range of `path` begins where a row begins, but for the lowest, whose first row may begin as early as `start`.
    """

    kept: list[Range]  # system messages below the floor, each as a range of one
    path: list[Range]
    start: int = 0

    @property
    def all(self) -> list[Range]:
        return self.kept + self.path if self.kept else self.path

    def after(self, older: VisibleRanges) -> VisibleRanges:
        """Put these behind older ones."""
        if not self.all:
            return older
        return VisibleRanges(older.kept + self.kept, older.path + self.path, older.start)

    def since(self, first: int) -> VisibleRanges:
        """Cut off the part before a seq."""
        if self.all[0][0] == first:
            return self
        kept = [part for part in self.kept if part[0] >= first]
        return VisibleRanges(kept, [(max(start, first), end) for start, end in self.path if end >= first])


class LogView(msgspec.Struct, frozen=True, gc=False):
    """The part of a session's log that a read asks for: a state and its path, from seq `first` to seq `last`."""

    db: Connection
    base: int
    walk: PathWalk
    state: State
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether everything that the state shows is asked for."""
        return self.first == 1 and self.last == self.state.head


def visible_ranges(view: LogView) -> VisibleRanges:
    """Find the ranges that the state shows. The path is walked no further down than something is shown."""
    first = max(view.first, view.state.floor + 1)
    path = view.walk.down_to(first) if first <= view.last else []
    if path and (path[0][0] < first or path[-1][1] > view.last):
        path = clip(path, first, view.last)
    start = earliest_start(path[0][0], view.walk.walked) if path else 0
    return VisibleRanges(_kept(view) if view.state.kept else [], path, start)


def newest_ranges(view: LogView, size: int) -> VisibleRanges:
    """Find the newest ranges that the state shows, of `size` seqs together, or all if there are fewer."""
    lowest, highest, begin = max(view.first, view.state.floor + 1), view.last, 0
    path: list[Range] = []
    for start, end in view.walk.back():
        last = min(end, highest)
        first = last - size + 1
        if first < start or first < lowest:
            first = max(start, lowest)
        if first <= last:
            path.append((first, last))
            size -= last - first + 1
            begin = start
        if not size or start <= lowest:
            break
    path.reverse()
    kept = _kept(view)[-size:] if size and view.state.kept else []
    return VisibleRanges(kept, path, max(begin, path[0][0] - MOST_LINES + 1) if path else 0)


def front_ranges(view: LogView, start: int) -> VisibleRanges:
    """Find what the state shows first, before the seq `start`: kept messages, and the first few entries of the path."""
    kept = [part for part in _kept(view) if part[0] < start] if view.state.kept else []
    lowest = view.state.floor + 1
    left, path = FRONT_ENTRIES, list[Range]()
    for first, last in clip(view.walk.down_to(lowest), lowest, start - 1) if lowest < start else ():
        path.append((first, min(last, first + left - 1)))
        left -= path[-1][1] - first + 1
        if not left:
            break
    return VisibleRanges(kept, path, earliest_start(path[0][0], view.walk.walked) if path else 0)


def latest_summaries(view: LogView) -> tuple[EntryRow, ...]:
    """Load the latest summaries on the path behind `cleared`, a few, in order."""
    first, last = view.base + view.state.cleared + 1, view.base + view.state.head
    found: list[EntryRow] = []
    for row in view.db.execute(SQL["latest_summaries"], (first, last, view.base)):
        if row[0] in view.walk:
            found[:0] = unpacked(row)
            if len(found) == FRONT_SUMMARIES:
                break
    if view.db.row(SQL["misplaced_summary"], (first if not found else view.base + found[0][0], last)) is not None:
        raise _missing_summaries()
    return tuple(found)


def _kept(view: LogView) -> list[Range]:
    """Find the system messages that a trim kept, each as a range of one."""
    first = max(view.first, view.state.cleared + 1)
    return [(seq, seq) for seq in view.state.kept if first <= seq <= view.last]


def summaries_below(view: LogView, first: int) -> list[Range]:
    """Find the ranges below the floor that may show summaries, from `first` on, down to the lowest summary."""
    first, last = max(first, view.state.cleared + 1), min(view.last, view.state.floor)
    if first > last:
        return []
    refuse_misplaced_summaries(view.db, view.base + first, view.base + last)
    lowest = view.db.value(SQL["lowest_summary"], (view.base + first, view.base + last))
    return [] if lowest is None else clip(view.walk.down_to(lowest - view.base), lowest - view.base, last)


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
        raise _missing_summaries()


def _missing_summaries() -> ValueError:
    return ValueError("summaries may be missing: the index of kinds is damaged where they should be")


def ranges_as_json(ranges: Sequence[Range], path: Sequence[Range]) -> str:
    """Write ranges as the JSON parameter of a statement: of each, where to look from, and its first and last seq."""
    starts = {first for first, _ in path}  # most begin there, and a search for each would be half of a read of many
    found = [(first if first in starts else earliest_start(first, path), first, last) for first, last in ranges]
    return msgspec.json.encode(found).decode()
