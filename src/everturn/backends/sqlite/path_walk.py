"""The path that leads to a head, walked backwards along the jumps of a session. It writes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from everturn.backends._shared.verification import damaged_jump
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.row_checksums import refuse_unsealed, unsealed
from everturn.backends.sqlite.session_row import SessionRow
from everturn.core.paths import Jump, Range

SQL = statements.load("path_walk.sql")
_LATEST_JUMPS = SQL["latest_jumps"]
_NEXT_JUMP = SQL["next_jump"]
FIRST_JUMPS, MOST_JUMPS = 4, 256  # fetched by one statement of a walk: a statement costs as much as four rows


class PathWalk:
    """The path to a head, walked back only as far as a caller asks for.

    A session that was edited ten thousand times has as many jumps, and few of them are on the path to its head. So each
    step seeks the next jumps on the path; where nearly every jump is on it, a step fetches more of them.
    """

    __slots__ = ("_at", "_db", "_link", "_ranges", "_session", "_step")

    def __init__(self, db: Connection, session: SessionRow, head: int) -> None:
        self._db = db
        self._session = session
        self._at = head  # the end of the next range; 0: the path has been walked to its beginning
        self._link = session.last_jump  # no jump lies between this one and those walked; 0: there is none before them
        self._step = FIRST_JUMPS
        self._ranges: list[Range] = []  # the newest first

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
        """Walk on by one statement, or two. False: there is no range before those walked."""
        at, step = self._at, self._step
        if at <= 0:
            return False
        walked = len(self._ranges)
        jumps = self._jumps_to(at, step) if self._session.last_jump else []
        for seq, after in jumps:
            if seq <= at:  # else it is a jump of another branch
                if not 0 <= after < seq:
                    raise damaged_jump(self._session.session_id, seq, after)
                self._ranges.append((seq, at))
                at = after
        if len(jumps) < step:
            if at > 0:
                self._ranges.append((1, at))
            at = 0
        self._step = min(4 * step, MOST_JUMPS) if 2 * (len(self._ranges) - walked) >= len(jumps) else FIRST_JUMPS
        self._at = at
        return len(self._ranges) > walked

    def _jumps_to(self, at: int, most: int) -> list[Jump]:
        """Read the last jumps up to a seq, newest first. Raises ValueError if one of them is missing.

        Each names the one before it, so that none is missed on a damaged page, or on one in another's place.
        """
        session, base = self._session, self._session.base
        if self._link > at:  # others lie between, of branches that this path does not take
            above = self._db.row(_NEXT_JUMP, (base + at, session.span[1]))
            if above is None:
                raise ValueError(f"its jump {self._link} is not there")
            self._link = unsealed(above, "the jump")[2]
        rows = refuse_unsealed(self._db.rows(_LATEST_JUMPS, (base, base + at, most)), "the jump")
        links = [self._link, *[row[2] for row in rows]]
        self._link = links[-1]
        jumps = [(row[0] - base, row[1]) for row in rows]
        for (seq, _), link in zip(jumps, links, strict=False):
            if seq != link:
                raise ValueError(f"its jump {link} is not there")
        if len(jumps) < most and self._link:
            raise ValueError(f"its jump {self._link} is not there")
        return jumps


def _negative_first(found: Range) -> int:
    return -found[0]
