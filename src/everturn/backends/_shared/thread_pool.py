"""A bounded pool of items that threads take and give back, such as connections. It neither makes nor closes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedPool(Generic[T]):
    """At most `size` items, each lent to one thread at a time. It holds the idle ones. Safe between threads.

    `exhausted` and `closed` make the errors that `take` raises: no item came back in time, or the pool was closed.
    """

    def __init__(self, size: int, exhausted: Callable[[], Exception], closed: Callable[[], Exception]) -> None:
        self._size = size
        self._exhausted = exhausted
        self._closed = closed
        # Entered by `with` directly: Condition.__enter__ is Python code, where an interrupt could leave the lock held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[T] = []
        self._out_or_idle = 0
        self._waiting = 0
        self.is_closed = False

    @property
    def lent(self) -> int:
        """Number of items that are lent out, as of a moment ago: it is read without the lock."""
        return self._out_or_idle - len(self._idle)

    def take(self, deadline: float) -> T | None:
        """Take the item that came back last. None: the caller may make one more, which counts as taken from now on.

        Waits until the deadline (time.monotonic) if all are lent out.
        """
        if not (self._waiting or self.is_closed):
            try:
                return self._idle.pop()  # atomic in the interpreter: the usual case needs no lock
            except IndexError:
                pass
        with self._lock:
            self._waiting += 1  # before looking at _idle: a thread that gives back after that look then notifies
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
                    continue  # a thread without the lock was faster
            if self._out_or_idle < self._size:
                self._out_or_idle += 1
                return None
            is_told = self._changed.wait(max(0.0, deadline - time.monotonic()))
            if not is_told or time.monotonic() >= deadline:
                if is_told:
                    self._changed.notify()  # we timed out: wake the next waiter
                raise self._exhausted()
        raise self._closed()

    def give_back(self, item: T) -> None:
        """Give back an item that was taken or made. If the pool is closed, call `clear` next."""
        self._idle.append(item)
        if self._waiting:
            with self._lock:
                self._changed.notify()

    def forget(self) -> None:
        """Drop an item that was taken, or was to be made: another may be made in its place."""
        with self._lock:
            self._out_or_idle -= 1
            self._changed.notify()

    def clear(self) -> list[T]:
        """Remove every idle item from the pool, and return them."""
        cleared: list[T] = []
        with self._lock:
            while self._idle:
                try:
                    cleared.append(self._idle.pop())
                except IndexError:
                    break  # a thread without the lock was faster
            self._out_or_idle -= len(cleared)
            self._changed.notify_all()
        return cleared

    def close(self) -> list[T]:
        """Lend nothing from now on, and wake every waiter to its error. Returns the idle items."""
        self.is_closed = True
        return self.clear()
