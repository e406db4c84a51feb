"""One timer for everything that waits in an event loop: each expires at its deadline, and hardly any sets a timer."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from everturn.backends._shared.deadline_watch import DeadlineWatch

LONG = 3600.0


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Owner:
    """Keeps the names of what expired, and says when there are enough of them."""

    def __init__(self, expected: int = 1) -> None:
        self.expired: list[str] = []
        self.enough = asyncio.Event()
        self._expected = expected
        self.watch: DeadlineWatch[str] = DeadlineWatch(self._expire)

    def _expire(self, name: str) -> None:
        self.expired.append(name)
        if len(self.expired) >= self._expected:
            self.enough.set()


def count_timers(loop: asyncio.AbstractEventLoop) -> list[float]:
    """Count the timers that are set from now on."""
    timers: list[float] = []
    call_later = loop.call_later

    def counting(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *arguments, **options)

    loop.call_later = counting  # type: ignore[method-assign]
    return timers


@in_loop
async def test_each_expires_at_its_own_deadline_in_whatever_order_they_came() -> None:
    owner, now = Owner(expected=3), time.monotonic()
    for name, seconds in (("last", 0.03), ("first", 0.01), ("never", LONG), ("second", 0.02)):
        owner.watch.add(name, now + seconds)
    await asyncio.wait_for(owner.enough.wait(), 30)
    assert owner.expired == ["first", "second", "last"]
    assert time.monotonic() >= now + 0.03
    owner.watch.close()


@in_loop
async def test_what_was_removed_does_not_expire() -> None:
    owner, now = Owner(), time.monotonic()
    owner.watch.add("removed", now + 0.01)
    owner.watch.add("kept", now + 0.02)
    owner.watch.remove("removed")
    owner.watch.remove("unknown")
    await asyncio.wait_for(owner.enough.wait(), 30)
    assert owner.expired == ["kept"]


@in_loop
async def test_a_deadline_that_has_passed_expires_all_the_same() -> None:
    owner = Owner()
    owner.watch.add("late", time.monotonic() - 1)
    await asyncio.wait_for(owner.enough.wait(), 30)
    assert owner.expired == ["late"]


@in_loop
async def test_many_that_wait_one_after_the_other_set_one_timer() -> None:
    owner = Owner()
    timers = count_timers(asyncio.get_running_loop())
    for number in range(100):
        owner.watch.add(str(number), time.monotonic() + LONG)
        owner.watch.remove(str(number))
    assert len(timers) == 1
    owner.watch.close()


@in_loop
async def test_a_closed_watch_calls_nobody() -> None:
    owner = Owner()
    owner.watch.add("a", time.monotonic() + 0.01)
    owner.watch.close()
    other = Owner()
    other.watch.add("b", time.monotonic() + 0.02)
    await asyncio.wait_for(other.enough.wait(), 30)
    assert owner.expired == []


@in_loop
async def test_the_timer_does_not_keep_its_owner_alive() -> None:
    owner = Owner()
    owner.watch.add("a", time.monotonic() + LONG)
    dead = weakref.ref(owner)
    del owner
    gc.collect()
    assert dead() is None
