"""Virtual time, and the coroutines of many clients driven in it: one thread, no event loop, no wall clock.

It knows nothing of stores and networks. Whatever happens, happens in the order of its events.
"""

from __future__ import annotations

import heapq
from asyncio import CancelledError  # the store's code knows this one; nothing else of asyncio is used
from collections.abc import Callable, Coroutine, Generator
from typing import Any

MOST_EVENTS = 50_000  # of one schedule: a store that sends for ever is an error, and not a hang


class Endless(Exception):
    """A schedule that does not come to an end."""


class Scheduler:
    """The true time of one simulated world, and what is due in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.task: Task | None = None  # the one that runs
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at a moment, behind whatever else is due then."""
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, do))

    def run(self) -> None:
        """Let everything happen that is due, until nothing is. Raises Endless."""
        events = self._events
        for _ in range(MOST_EVENTS):
            if not events:
                return
            self.now, _, do = heapq.heappop(events)
            do()
        raise Endless(f"more than {MOST_EVENTS} events")


class Signal:
    """Something that a task awaits: set once, with a value or an error."""

    __slots__ = ("_error", "_is_set", "_scheduler", "_task", "_value")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._task: Task | None = None

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self, value: Any = None, error: BaseException | None = None) -> None:
        """Wake whoever waits. A second call does nothing: a reply may come when its caller has given up."""
        if self._is_set:
            return
        self._is_set, self._value, self._error = True, value, error
        if self._task is not None:
            task = self._task
            self._scheduler.at(self._scheduler.now, lambda: task.wake(self))

    def __await__(self) -> Generator[Signal, None, Any]:
        if not self._is_set:
            self._task = self._scheduler.task
            yield self
        if self._error is not None:
            raise self._error
        return self._value


class Task:
    """One coroutine of one host. `tag` is whatever its owner wants to know of it while it runs."""

    def __init__(self, scheduler: Scheduler, host: Any, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.host = host
        self.tag: Any = None
        self.is_over = False
        self._scheduler = scheduler
        self._coroutine = coroutine
        self._waiting: Signal | None = None
        scheduler.at(scheduler.now, self._step)

    def wake(self, signal: Signal) -> None:
        if self._waiting is signal:
            self._step()

    def cancel(self) -> None:
        """Raise CancelledError where the task waits."""
        if self._waiting is not None and not self.is_over:
            self._waiting = None
            self._scheduler.at(self._scheduler.now, lambda: self._step(CancelledError()))

    def drop(self) -> None:
        """Forget a task for good, as the kill of its process does: it is never run again."""
        self.is_over = True
        self._waiting = None

    def close(self) -> None:
        """Free what is left of a coroutine, after the end of the world. Its cleanup can talk to nobody."""
        self.is_over = True
        try:
            self._coroutine.close()
        except RuntimeError:  # its cleanup wanted to wait
            pass

    def _step(self, error: BaseException | None = None) -> None:
        if self.is_over:
            return
        self._waiting = None
        self._scheduler.task = self
        try:
            waiting = self._coroutine.throw(error) if error is not None else self._coroutine.send(None)
        except StopIteration:
            self.is_over = True
            return
        finally:
            self._scheduler.task = None
        if not isinstance(waiting, Signal):
            raise TypeError(f"the store waits for {waiting!r}, which is none of the simulator's")
        self._waiting = waiting
