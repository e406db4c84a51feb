"""One timer of an event loop for everything that waits there until a deadline. It does not know what waits.

A timer for each change would be set and cancelled for nothing nearly always, which is a tenth of what an awaited
change costs the loop.
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class DeadlineWatch(Generic[T]):
    """Calls `expire` for whatever still waits when its deadline (time.monotonic) has passed. Belongs to one event loop.

    The timer stays set for the earliest deadline there was, and is set again when it rings: so that hardly any call
    sets one. `expire` is a method; the timer does not keep its object alive.
    """

    def __init__(self, expire: Callable[[T], None]) -> None:
        self._expire = weakref.WeakMethod(expire)
        self._deadlines: dict[T, float] = {}
        self._rings_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: T, deadline: float) -> None:
        """Watch something until `remove`, or until its deadline."""
        self._deadlines[waiting] = deadline
        if deadline < self._rings_at:
            self._set_timer(deadline)

    def remove(self, waiting: T) -> None:
        """Stop watching it. Does nothing if it has expired."""
        self._deadlines.pop(waiting, None)

    def close(self) -> None:
        """Cancel the timer, and forget everything that waits."""
        self._deadlines.clear()
        self._cancel_timer()

    def _set_timer(self, deadline: float) -> None:
        self._cancel_timer()
        delay = max(0.0, deadline - time.monotonic())
        self._timer, self._rings_at = asyncio.get_running_loop().call_later(delay, self._ring), deadline

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, math.inf

    def _ring(self) -> None:
        self._cancel_timer()
        expire = self._expire()
        if expire is None:
            return
        now = time.monotonic()
        for waiting in [waiting for waiting, deadline in self._deadlines.items() if deadline <= now]:
            self.remove(waiting)
            expire(waiting)
        if self._deadlines:
            self._set_timer(min(self._deadlines.values()))
