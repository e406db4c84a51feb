"""The path that leads to a head, walked backwards along the jumps of a session. It writes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from everturn.backends._shared.verification import damaged_jump
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.row_checksums import unsealed
from everturn.backends.sqlite.session_row import SessionRow
from everturn.core.paths import Range

SQL = statements.load("path_walk.sql")
_LATEST_JUMPS = SQL["latest_jumps"]
_NEXT_JUMP = SQL["next_jump"]
MOST_JUMPS = 256  # fetched by one statement of a walk


class PathWalk:
    """The path to a head, walked back only as far as a caller asks for.

    A session that was edited ten thousand times has as many jumps, and few of them are on the path to its head. So each
    step seeks the next jump on the path; where nearly every jump is on it, a step fetches more of them.
    """

    __slots__ = ("_ranges", "_walk")

    def __init__(self, db: Connection, session: SessionRow, head: int) -> None:
        self._ranges: list[Range] = []  # the newest first
        self._walk = _walk(db, session, head) if session.last_jump else iter([(1, head)] if head else [])

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
        # Each jump names the one before it, so that none is missed on a damaged page, or on one in another's place.
        above = db.row(_NEXT_JUMP, (base + at, session.span[1]))
        following = session.last_jump if above is None else unsealed(above, "the jump")[2]
        jumps = db.rows(_LATEST_JUMPS, (base, base + at, step))
        used = 0
        for jump in jumps:
            row_id, after, prior = unsealed(jump, "the jump")
            seq = row_id - base
            if seq != following:
                raise ValueError(f"its jump {following} is not there")
            following = prior
            if seq <= at:
                if not 0 <= after < seq:
                    raise damaged_jump(session.session_id, seq, after)
                yield seq, at
                at = after
                used += 1
        if len(jumps) < step:
            if following:
                raise ValueError(f"its jump {following} is not there")
            if at > 0:
                yield 1, at
            return
        step = min(2 * step, MOST_JUMPS) if 2 * used >= len(jumps) else 1
