"""A bounded pool of items that threads take and give back, such as connections. It neither makes nor closes them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PoolPlace(Generic[T]):
    """Room for one item of a pool: `take` lends it. `item` is None until the borrower has made one."""

    __slots__ = ("__weakref__", "item")

    def __init__(self) -> None:
        self.item: T | None = None


class BoundedPool(Generic[T]):
    """At most `size` places, each lent to one thread at a time. It holds the idle ones. Safe between threads.

    A place counts for as long as somebody has it. So a signal whose handler raises between `take` and the `try` of the
    borrower costs no place: the one that was taken goes with the call that was interrupted.

    `exhausted` and `closed` make the errors that `take` raises: no place came back in time, or the pool was closed.
    `waited` is told of every wait for a place, with the moment since when it lasted.
    """

    def __init__(
        self,
        size: int,
        exhausted: Callable[[], Exception],
        closed: Callable[[], Exception],
        waited: Callable[[float], None] | None = None,
    ) -> None:
        self._size = size
        self._waited = waited
        self._exhausted = exhausted
        self._closed = closed
        # Entered by `with` directly: Condition.__enter__ is Python code, where an interrupt could leave the lock held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[PoolPlace[T]] = []
        self._places: weakref.WeakSet[PoolPlace[T]] = weakref.WeakSet()  # lent or idle
        self._waiting = 0
        self.is_closed = False

    @property
    def lent(self) -> int:
        """Number of places that are lent out, as of a moment ago: it is read without the lock."""
        return len(self._places) - len(self._idle)

    def take(self, deadline: float) -> PoolPlace[T]:
        """Take the place that came back last, or a new one, for which the caller may make an item.

        Waits until the deadline (time.monotonic) if all are lent out.
        """
        if not (self._waiting or self.is_closed):
            try:
                return self._idle.pop()  # atomic in the interpreter: the usual case needs no lock
            except IndexError:
                pass
        since = time.monotonic() if len(self._places) >= self._size else None
        try:
            with self._lock:
                self._waiting += 1  # before looking at _idle: a thread that gives back after that look then notifies
                try:
                    return self._next(deadline)
                finally:
                    self._waiting -= 1
        finally:
            if since is not None and self._waited is not None:
                self._waited(since)

    def _next(self, deadline: float) -> PoolPlace[T]:
        while not self.is_closed:
            if self._idle:
                try:
                    return self._idle.pop()
                except IndexError:
                    continue  # a thread without the lock was faster
            if len(self._places) < self._size:
                place = PoolPlace[T]()
                self._places.add(place)
                return place
            is_told = self._changed.wait(max(0.0, deadline - time.monotonic()))
            if not is_told or time.monotonic() >= deadline:
                if is_told:
                    self._changed.notify()  # we timed out: wake the next waiter
                raise self._exhausted()
        raise self._closed()

    def give_back(self, place: PoolPlace[T]) -> None:
        """Give back a place with its item. If the pool is closed, call `clear` next."""
        self._idle.append(place)
        if self._waiting:
            with self._lock:
                self._changed.notify()

    def forget(self, place: PoolPlace[T]) -> None:
        """Drop a place that was taken, with its item, if one was made: there is room for another."""
        with self._lock:
            self._places.discard(place)
            self._changed.notify()

    def clear(self) -> list[T]:
        """Remove every idle item from the pool, and return them."""
        cleared: list[T] = []
        with self._lock:
            while self._idle:
                try:
                    place = self._idle.pop()
                except IndexError:
                    break  # a thread without the lock was faster
                self._places.discard(place)
                if place.item is not None:
                    cleared.append(place.item)
                    place.item = None
            self._changed.notify_all()
        return cleared

    def idle_after_fork(self) -> list[T]:
        """Return the idle items in a child process. Without the lock: a thread of the parent may have held it."""
        return [place.item for place in self._idle if place.item is not None]

    def close(self) -> list[T]:
        """Lend nothing from now on, and wake every waiter to its error. Returns the idle items."""
        self.is_closed = True
        return self.clear()
