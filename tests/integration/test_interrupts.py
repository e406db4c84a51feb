"""Ctrl-C, again and again, in the middle of calls: nothing crashes, nobody hangs, nothing is lost.

Those on a file of SQLite are in test_group_commit.py. Signals reach the main thread, so each story is a process.
"""

from __future__ import annotations

import gc
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everturn
from everturn import ChatMessage
from everturn.backends._shared.thread_pool import BoundedPool
from everturn.backends.redis.transport import resp
from tests.integration.children import run
from tests.integration.stepping import walk
from tests.store.places import Servers

ROUNDS = 300


def storm(work: Callable[[int], None], *, longest: float) -> None:
    """Do the work so many times, most of them interrupted once, at a random moment."""
    dice = random.Random(7)
    interrupted = 0
    # How long it takes, and so how many are interrupted, depends on the machine: until enough were.
    for number in range(20 * ROUNDS):
        if number >= ROUNDS and interrupted > ROUNDS / 10:
            break
        try:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00001, longest))
            work(number)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert interrupted > ROUNDS / 10, "hardly any interrupt: the test saw nothing"


def pack() -> None:
    def work(_: int) -> None:
        for size in range(300):
            resp.packed([("EVALSHA", b"x" * 40, 5, "a", size, time.time_ns())])

    storm(work, longest=0.0003)


def lend() -> None:
    things: BoundedPool[int] = BoundedPool(10**6, TimeoutError, RuntimeError)

    def work(_: int) -> None:
        for _ in range(300):
            things.forget(things.take(time.monotonic() + 50))

    storm(work, longest=0.0003)
    assert not things._lock.locked()
    things.clear()


def lend_at_each_step() -> None:
    """Interrupt a loan at each step, of a new place and of an idle one, given back and dropped: none is lost."""
    things: BoundedPool[object] = BoundedPool(1, TimeoutError, RuntimeError)

    def use(*, drop: bool) -> None:
        place = things.take(time.monotonic() + 50)
        try:
            place.item = place.item or object()
        except BaseException:
            things.forget(place)
            raise
        if drop:
            things.forget(place)
        else:
            things.give_back(place)

    def look() -> None:
        gc.collect()
        assert things.lent == 0
        assert not things._lock.locked()
        things.forget(things.take(0.0))  # an idle one or a new one, at once

    for drop in (False, True):
        walk(KeyboardInterrupt, lambda drop=drop: use(drop=drop), look, 1)
        walk(KeyboardInterrupt, lambda drop=drop: use(drop=drop), lambda: (look(), use(drop=False)), 1)


@pytest.mark.parametrize("story", [pack, lend, lend_at_each_step])
def test_an_interrupt_leaves_nothing_broken(story: Callable[[], None]) -> None:
    run(story)


def write_and_look(url: str) -> None:
    acknowledged: list[int] = []
    options: dict[str, Any] = {} if url == "sqlite://" else {"warnings": False}
    with everturn.open(url, timeout=20, namespace="interrupts", **options) as store:

        def work(number: int) -> None:
            store.add_messages("a", [ChatMessage("user", str(number))])
            acknowledged.append(number)
            store.get_history("a", limit=1)
            store.info("a")

        started = time.monotonic()
        for number in range(-20, 0):
            work(number)
        storm(work, longest=1.2 * (time.monotonic() - started) / 20)
        work(20 * ROUNDS)
        there = Counter(int(message.text) for message in store.get_history("a"))
        assert set(there.values()) == {1}
        assert set(acknowledged) <= set(there)
        store.erase("a")


@pytest.mark.parametrize("backend", ["memory", "valkey", "postgres"])
def test_interrupts_wedge_nobody(servers: Servers, backend: str) -> None:
    run(write_and_look, "sqlite://" if backend == "memory" else getattr(servers, backend).url)


def test_what_an_interrupted_call_could_not_return_is_taken_up_by_the_next() -> None:
    with everturn.open("sqlite://", timeout=1) as store:
        store._operations.backend._database._memory.acquire()  # type: ignore[attr-defined]  # SQLite's
        assert store.add_messages("a", [ChatMessage("user", "1")]).version == 1
        with ThreadPoolExecutor(1) as threads:
            assert len(threads.submit(store.get_history, "a").result()) == 1
