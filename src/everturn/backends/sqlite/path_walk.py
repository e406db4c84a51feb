"""The path that leads to a head, walked backwards along the jumps of a session. It writes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import gt

from everturn.backends._shared.verification import damaged_jump
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.row_checksums import unsealed
from everturn.backends.sqlite.session_row import SessionRow
from everturn.core.paths import Range

SQL = statements.load("path_walk.sql")
_LATEST_JUMPS = SQL["latest_jumps"]
_JUMPS_BESIDE = SQL["jumps_beside"]
MOST_JUMPS = 256  # fetched by one statement of a walk


class PathWalk:
    """The path to a head, walked back only as far as a caller asks for.

    A session that was edited ten thousand times has as many jumps, and few of them are on the path to its head. So each
    step seeks the next jump on the path; where nearly every jump is on it, a step fetches more of them.
    """

    __slots__ = ("_ranges", "_walk")

    def __init__(self, db: Connection, session: SessionRow, head: int) -> None:
        self._ranges: list[Range] = []  # the newest first
        self._walk = _walk(db, session, head) if session.jumps else iter([(1, head)] if head else [])

    @property
    def walked(self) -> list[Range]:
        """The ranges walked so far, in order."""
        return self._ranges[::-1]

    def back(self) -> Iterator[Range]:
        """Yield the ranges of the path, newest first."""
        place = 0
        while place < len(self._ranges) or self._goes_on():
            yield self._ranges[place]
            place += 1

    def down_to(self, seq: int) -> list[Range]:
        """Walk down to `seq`, and return the ranges from there to the head, in order."""
        self._reach(seq)
        return self._ranges[::-1]

    def __contains__(self, seq: int) -> bool:
        self._reach(seq)
        at = bisect_left(self._ranges, -seq, key=_negative_first)  # the newest range that begins at `seq` or before
        return seq > 0 and at < len(self._ranges) and seq <= self._ranges[at][1]

    def _reach(self, seq: int) -> None:
        while (not self._ranges or self._ranges[-1][0] > seq) and self._goes_on():
            pass

    def _goes_on(self) -> bool:
        found = next(self._walk, None)
        if found is not None:
            self._ranges.append(found)
        return found is not None


def _negative_first(found: Range) -> int:
    return -found[0]


def _walk(db: Connection, session: SessionRow, at: int) -> Iterator[Range]:
    base, step = session.base, 1
    while at > 0:
        jumps = db.rows(_LATEST_JUMPS, (base, base + at, step))
        _refuse_misplaced(db, [jump[0] for jump in jumps], base, at)
        used = 0
        for jump in jumps:
            row_id, after = unsealed(jump, "the jump")
            seq = row_id - base
            if seq <= at:
                if not 0 <= after < seq:
                    raise damaged_jump(session.session_id, seq, after)
                yield seq, at
                at = after
                used += 1
        if len(jumps) < step:
            if at > 0:
                yield 1, at
            return
        step = min(2 * step, MOST_JUMPS) if 2 * used >= len(jumps) else 1


def _refuse_misplaced(db: Connection, ids: list[int], base: int, at: int) -> None:
    """Raise ValueError if a jump may have been missed: on a damaged page, or on one that lies in another's place.

    Those found must be in order, and those beside them as they were written, and where they should be.
    """
    are_found = all(map(gt, ids, ids[1:]))
    for is_found, *beside in db.execute(_JUMPS_BESIDE, (base + at, ids[-1] if ids else base)):
        unsealed(beside, "the jump")
        are_found = are_found and is_found
    if not are_found:
        raise ValueError(f"the jumps are damaged where those up to entry {at} should be")
