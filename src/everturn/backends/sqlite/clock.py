"""The clock that decides what has expired: one step of the wall clock must not end a session's life.

Pure: both clocks come in. apply_change.py and transfer.py write the time. Decision 021 says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

RATE = 1.001  # how much faster than the time that passed the wall clock may run: NTP slews by half of that at most
SLACK = 0.05  # seconds that two readings of the clocks may lie apart, where a thread has to wait between them


def elapsed() -> float:
    """Seconds that passed on this machine, those of a suspend included where the system counts them."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Time that never runs backwards, and never further ahead than time has passed.

    A wall clock that steps forward is not believed until as much time has really passed; one that steps back makes
    this one stand still. The first reading is believed: there is nothing to compare it with. Without a clock that
    tells how much time `passed` all are.
    """

    def __init__(self, wall: Callable[[], float] = time.time, passed: Callable[[], float] | None = elapsed) -> None:
        self._wall = wall
        self._passed = passed
        self._lock = threading.Lock()
        self._believed = self._latest = self._steady = self._mark = 0.0
        if passed is not None:
            self._mark = passed()
            self._believed = self._latest = self._steady = wall()

    def now(self) -> float:
        """The time to judge by what has expired."""
        return self.read()[0]

    def read(self) -> tuple[float, float]:
        """The same, and the moment from which the life of what is written now is counted.

        The latter is the wall clock's if that is ahead, and goes on while a wall clock that was set back makes this one
        stand still: another process may rightly be there, and a session that expires too late is better than one that
        expires too early.
        """
        with self._lock:
            if self._passed is None:
                self._latest = max(self._latest, self._wall())
                return self._latest, self._latest
            mark, wall = self._passed(), self._wall()
            bound = self._believed + (mark - self._mark) * RATE
            steady = self._steady + (mark - self._mark) * (2 - RATE)  # it loses a little: one that was ahead comes back
            self._mark = mark
            # Without the slack: else each call would let a wall clock that is wrong gain some on the truth.
            self._believed = max(self._believed, min(wall, bound))
            self._latest = max(self._latest, min(wall, bound + SLACK))
            self._steady = max(steady, self._believed)
            return self._latest, max(self._latest, self._steady, wall)

    def forget_threads(self) -> None:
        """In the child of a fork: whoever held the lock is in the parent."""
        self._lock = threading.Lock()
