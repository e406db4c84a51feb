"""Hosts of a simulated world with clocks of their own, and the world's time and chance put into the store's modules.

A clock is told from the true time: it runs at a rate, and may be stepped. Nothing here reads the real one.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.simulation.scheduler import Scheduler, Signal, Task

EPOCH = 1_800_000_000.0  # what wall clocks show when a world begins, more or less


class Clock:
    """A clock in terms of the true time: its rate, and its steps."""

    def __init__(self, base: float, rate: float = 1.0) -> None:
        self.rate = rate
        self._moments = [float("-inf")]
        self._bases = [base]

    def at(self, moment: float) -> float:
        if len(self._bases) == 1:
            return self._bases[0] + self.rate * moment
        return self._bases[bisect_right(self._moments, moment) - 1] + self.rate * moment

    def step(self, moment: float, seconds: float) -> None:
        """Set the clock forward, or back, at a moment that is not before any other step."""
        self._moments.append(moment)
        self._bases.append(self._bases[-1] + seconds)

    def steps_between(self, first: float, last: float) -> list[float]:
        """The moments of its steps from `first` to `last`."""
        return [moment for moment in self._moments[1:] if first <= moment <= last]

    def error(self, moment: float) -> float:
        """The sum of its steps so far: how far it is from a clock that was never stepped."""
        return self._bases[bisect_right(self._moments, moment) - 1] - self._bases[0]


class Host:
    """A process with a monotonic clock and a wall clock. It is also a Runtime of the store (everturn.backend)."""

    def __init__(self, scheduler: Scheduler, name: str, monotonic: Clock, wall: Clock) -> None:
        self.scheduler = scheduler
        self.name = name
        self.monotonic_clock = monotonic
        self.wall = wall
        self.is_alive = True
        self.tasks: list[Task] = []

    def clock(self) -> float:
        return self.monotonic_clock.at(self.scheduler.now)

    def true(self, monotonic: float) -> float:
        """The true time at which the monotonic clock shows a moment."""
        return (monotonic - self.monotonic_clock.at(0.0)) / self.monotonic_clock.rate

    async def sleep(self, seconds: float) -> None:
        signal = Signal(self.scheduler)
        self.scheduler.at(self.scheduler.now + max(0.0, seconds) / self.monotonic_clock.rate, signal.set)
        await signal

    async def offload(self, think: Any) -> Any:
        return think()

    async def answer(self, awaitable: Any, _path: str) -> Any:
        return await awaitable

    def start(self, coroutine: Any) -> Task:
        task = Task(self.scheduler, self, coroutine)
        self.tasks.append(task)
        return task

    def kill(self) -> None:
        """End the process where it stands: none of its coroutines runs again."""
        self.is_alive = False
        for task in self.tasks:
            task.drop()


class SimulatedTime:
    """Replaces the module `time` in the store's modules: the time of the host whose task runs."""

    def __init__(self, scheduler: Scheduler, default: Host) -> None:
        self._scheduler = scheduler
        self._default = default

    @property
    def _host(self) -> Host:
        task = self._scheduler.task
        return self._default if task is None else task.host

    def monotonic(self) -> float:
        return self._host.clock()

    perf_counter = monotonic

    def time(self) -> float:
        host = self._host
        return host.wall.at(host.scheduler.now)

    def time_ns(self) -> int:
        return int(self.time() * 1_000_000) * 1000

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"the store blocks its thread for {seconds} s; the simulator can only wait in a coroutine")


_REAL = {"time": time, "urandom": os.urandom, "monotonic": time.monotonic}
_modules: dict[int, list[tuple[Any, str]]] = {}


def _module_names() -> list[tuple[Any, str]]:
    """The store's modules that have one of these names, each with the name."""
    known = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "everturn"]
    if len(known) not in _modules:
        _modules.clear()
        _modules[len(known)] = [
            (module, name)
            for module in known
            if not module.__name__.startswith("everturn.testing")
            for name, original in _REAL.items()
            if module.__dict__.get(name) is original
        ]
    return _modules[len(known)]


@contextmanager
def simulated_time(scheduler: Scheduler, default: Host, random: Random) -> Iterator[None]:
    """Replace time and chance in the store's modules by those of this world, for a block."""
    clock = SimulatedTime(scheduler, default)
    stand_ins = {"time": clock, "urandom": random.randbytes, "monotonic": clock.monotonic}
    names = _module_names()
    for module, name in names:
        setattr(module, name, stand_ins[name])
    try:
        yield
    finally:
        for module, name in names:
            setattr(module, name, _REAL[name])
