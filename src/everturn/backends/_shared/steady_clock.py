"""The clock that decides which sessions have expired: a step of the wall clock must not end one (decision 021).

Pure: both clocks are passed in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

RATE = 1.001  # most that the wall clock may run ahead of elapsed time: NTP slews by half of that at most
SLACK = 0.05  # seconds that may pass between reading one clock and the other, when the thread has to wait


# Reads the seconds that passed on this machine, with those of a suspend where the system counts them.
elapsed = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Clock:
    """Time that never runs backwards, and never faster than time passes.

    A wall clock that steps forward is not believed until as much time has really passed. One that steps back makes
    this clock stand still. The first reading is believed: there is nothing to compare it with. Without `passed`, the
    clock of elapsed time, every reading is believed.
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
        """Read the time that decides what has expired."""
        return self.read()[0]

    def read(self) -> tuple[float, float]:
        """Read that time, and the moment from which a TTL written now counts.

        The moment is the wall clock's if that is ahead, because another process may rightly be there. It goes on while
        a wall clock that was set back makes this clock stand still. A session that expires too late is better than one
        that expires too early.
        """
        with self._lock:
            if self._passed is None:
                self._latest = max(self._latest, self._wall())
                return self._latest, self._latest
            mark, wall = self._passed(), self._wall()
            gone, self._mark = mark - self._mark, mark
            bound = self._believed + gone * RATE
            # Without the slack: else a wrong wall clock would gain some at each call.
            self._believed = max(self._believed, min(wall, bound))
            self._latest = max(self._latest, min(wall, bound + SLACK))
            # A little slower than time: a moment that was ahead comes back.
            self._steady = max(self._steady + gone * (2 - RATE), self._believed)
            return self._latest, max(self._latest, self._steady, wall)

    def forget_threads(self) -> None:
        """Make a new lock in the child of an os.fork: the thread that held it is in the parent."""
        self._lock = threading.Lock()
