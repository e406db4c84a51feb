"""Ctrl-C, again and again, in the middle of calls on servers: nothing crashes, nobody hangs, nothing is lost.

SQLite's interrupts are in test_group_commit.py. Signals reach the main thread, so each story is a process.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

import everturn
from everturn import ChatMessage
from everturn.backends.redis import wire
from everturn.backends.shelf import Shelf
from tests.contract.places import Servers
from tests.integration.children import run

ROUNDS = 300


def storm(work: Callable[[int], None], *, longest: float) -> list[int]:
    """Do the work so many times, each interrupted once, at a random moment. Those that were not done."""
    dice = random.Random(7)
    interrupted: list[int] = []
    for number in range(ROUNDS):
        try:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00001, longest))
            work(number)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        except KeyboardInterrupt:
            interrupted.append(number)
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert len(interrupted) > ROUNDS / 10, "hardly any interrupt: the test saw nothing"
    return interrupted


def pack() -> None:
    def work(_: int) -> None:
        for size in range(300):
            wire.packed([("EVALSHA", b"x" * 40, 5, "a", size, time.time_ns())])

    storm(work, longest=0.0003)


def lend() -> None:
    things: Shelf[int] = Shelf(10**6, TimeoutError, RuntimeError)

    def work(_: int) -> None:
        for _ in range(300):
            things.take(time.monotonic() + 50)
            things.forget()

    storm(work, longest=0.0003)
    assert not things._lock.locked()
    things.clear()


@pytest.mark.parametrize("story", [pack, lend])
def test_an_interrupt_leaves_nothing_broken(story: Callable[[], None]) -> None:
    run(story)


def write_and_look(url: str) -> None:
    acknowledged: list[int] = []
    with everturn.open(url, timeout=20, warnings=False, namespace="interrupts") as store:

        def work(number: int) -> None:
            store.add_messages("a", [ChatMessage("user", str(number))])
            acknowledged.append(number)
            store.info("a")

        work(-1)
        storm(work, longest=0.003)
        work(ROUNDS)
        there = Counter(int(message.text) for message in store.get_history("a"))
        assert set(there.values()) == {1}
        assert set(acknowledged) <= set(there)
        store.erase("a")


@pytest.mark.parametrize("engine", ["valkey", "postgres"])
def test_interrupts_on_a_server_wedge_nobody(servers: Servers, engine: str) -> None:
    run(write_and_look, getattr(servers, engine).url)
