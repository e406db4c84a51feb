"""A bounded number of things that threads lend each other: connections, most of all. It neither makes nor ends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedPool(Generic[T]):
    """At most `size` things, each with one thread at a time; those that are idle stand here. Safe between threads.

    `exhausted` and `closed` make the errors that `take` raises: none came back in time, or the shelf was closed.
    """

    def __init__(self, size: int, exhausted: Callable[[], Exception], closed: Callable[[], Exception]) -> None:
        self._size = size
        self._exhausted = exhausted
        self._closed = closed
        # Taken by `with` itself: a Condition's own way in is Python's, where an interrupt may leave it held by nobody.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[T] = []
        self._out_or_idle = 0
        self._waiting = 0
        self.is_closed = False

    @property
    def lent(self) -> int:
        """How many are with someone, as it was a moment ago: a look without the lock."""
        return self._out_or_idle - len(self._idle)

    def take(self, deadline: float) -> T | None:
        """The thing that came back last; None where the caller may make one more, which then counts as taken."""
        if not (self._waiting or self.is_closed):
            try:
                return self._idle.pop()  # one step of the interpreter: no lock for what is most often so
            except IndexError:
                pass
        with self._lock:
            self._waiting += 1  # before looking: whoever gives back after that look says so
            try:
                return self._next(deadline)
            finally:
                self._waiting -= 1

    def _next(self, deadline: float) -> T | None:
        while not self.is_closed:
            if self._idle:
                try:
                    return self._idle.pop()
                except IndexError:
                    continue  # someone without the lock was quicker
            if self._out_or_idle < self._size:
                self._out_or_idle += 1
                return None
            is_told = self._changed.wait(max(0.0, deadline - time.monotonic()))
            if not is_told or time.monotonic() >= deadline:
                if is_told:
                    self._changed.notify()  # what came back too late for this one is another's
                raise self._exhausted()
        raise self._closed()

    def give_back(self, thing: T) -> None:
        """Put back what was taken or made. If the shelf is closed, `clear` it next."""
        self._idle.append(thing)
        if self._waiting:
            with self._lock:
                self._changed.notify()

    def forget(self) -> None:
        """What was taken, or was to be made, is no more: another may take its place."""
        with self._lock:
            self._out_or_idle -= 1
            self._changed.notify()

    def clear(self) -> list[T]:
        """Take away all that are idle, and forget them."""
        cleared: list[T] = []
        with self._lock:
            while self._idle:
                try:
                    cleared.append(self._idle.pop())
                except IndexError:
                    break  # someone without the lock was quicker
            self._out_or_idle -= len(cleared)
            self._changed.notify_all()
        return cleared

    def close(self) -> list[T]:
        """Lend nothing from now on; whoever waits hears of it. Returns those that were idle."""
        self.is_closed = True
        return self.clear()
