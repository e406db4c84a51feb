"""Exceptions that a signal's handler raises in the middle of a SQLite call reach its caller, and nobody else.

Celery stops a task so (SoftTimeLimitExceeded), and so does many a time-out of one's own. Signals reach the main thread,
so each story is a process. Redis's and PostgreSQL's are with those backends.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStore, MemoryStoreBackendError
from everturn.store.options import Settings
from everturn.store.retries import RetryingSender
from tests.integration.children import locked, run
from tests.tiers import deep, first

ROUNDS = 100


class SoftTimeLimitExceeded(Exception):
    """As Celery's, which derives from Exception."""


RAISED: dict[str, type[BaseException]] = {
    "soft": SoftTimeLimitExceeded,
    "keyboard": KeyboardInterrupt,
    "timeout": TimeoutError,
    "connection": ConnectionError,
    "value": ValueError,
    "type": TypeError,
}


class DelayedSignal:
    """Raises in the main thread, a little later."""

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind
        self._armed = False
        self.raised: BaseException | None = None
        signal.signal(signal.SIGALRM, self)

    def __call__(self, _signal: int, _frame: object) -> None:
        if not self._armed:
            return
        self._armed = False
        self.raised = self._kind("the handler's own")
        raise self.raised

    def became(self, call: Callable[[], object], seconds: float) -> str:
        """Outcome of a call when the signal comes so much later: `in time`, `raised` or `swallowed`."""
        self.raised = None
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds)
                call()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as exc:
            if exc is self.raised:
                return "raised"
            raise
        return "in time" if self.raised is None else "swallowed"


def say(store: MemoryStore, session_id: str, text: str) -> None:
    store.add_messages(session_id, [ChatMessage("user", text)])


def checked(store: MemoryStore, acknowledged: set[str]) -> None:
    there = Counter(message.text for message in store.get_history("main"))
    assert set(there.values()) <= {1}, "something was written twice"
    assert acknowledged <= set(there), "something acknowledged is not there"
    assert store.verify().ok


def alone(url: str, kind: str) -> None:
    """One thread writes and reads; the signal comes at random moments."""
    dice = random.Random(kind)
    interrupting, became, acknowledged = DelayedSignal(RAISED[kind]), Counter[str](), set[str]()
    with everturn.open(url, timeout=20) as store:

        def work(number: int) -> None:
            say(store, "main", str(number))
            acknowledged.add(str(number))
            store.get_history("main", limit=5)
            store.info("main")
            store.sessions()

        started = time.monotonic()
        for number in range(-20, 0):
            work(number)
        longest = 1.2 * (time.monotonic() - started) / 20
        # How long a call takes, and so how many are interrupted, depends on the machine: until enough were.
        for number in range(40 * ROUNDS):
            became[interrupting.became(lambda number=number: work(number), dice.uniform(0.00001, longest))] += 1
            if number >= ROUNDS and became["raised"] > ROUNDS / 10:
                break
        work(40 * ROUNDS)
        checked(store, acknowledged)
    assert became["swallowed"] == 0, became
    assert became["raised"] > ROUNDS / 10, "hardly any: the test saw nothing"


def among_others(url: str, kind: str) -> None:
    """Three threads write, too: one leads for all, and what interrupts it is not theirs."""
    dice = random.Random(kind)
    sys.setswitchinterval(1e-5)
    interrupting, became, acknowledged = DelayedSignal(RAISED[kind]), Counter[str](), set[str]()
    stop, strange = threading.Event(), list[BaseException]()
    with everturn.open(url, timeout=20) as store:

        def write_on(index: int) -> None:
            number = 0
            while not stop.is_set():
                try:
                    say(store, f"other {index}", str(number))
                except MemoryStoreBackendError as exc:
                    if exc.outcome != "unknown" or "handler" in str(exc):
                        strange.append(exc)
                except BaseException as exc:  # noqa: BLE001 - any is looked at below
                    strange.append(exc)
                number += 1

        threads = [threading.Thread(target=write_on, args=(index,), daemon=True) for index in range(3)]
        for thread in threads:
            thread.start()

        def work(number: int) -> None:
            say(store, "main", str(number))
            acknowledged.add(str(number))

        # How long a call takes, and so how many are interrupted, depends on the machine: until enough were.
        for number in range(40 * ROUNDS):
            became[interrupting.became(lambda number=number: work(number), dice.uniform(0.00001, 0.01))] += 1
            if number >= ROUNDS and became["raised"] > ROUNDS / 10:
                break
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "somebody waits for ever"
        work(-1)
        checked(store, acknowledged)
    assert strange == []
    assert became["swallowed"] == 0, became
    assert became["raised"] > ROUNDS / 10, became


def at_a_lock(url: str, kind: str) -> None:
    """Another process holds the file's lock: SQLite asks our handler again and again whether to wait on."""
    interrupting = DelayedSignal(RAISED[kind])
    path = Path(url.removeprefix("sqlite:///"))
    with everturn.open(url, timeout=30) as store:
        say(store, "main", "first")
        with locked(path):
            started = time.monotonic()
            for number in range(10):
                assert interrupting.became(lambda number=number: say(store, "main", str(number)), 0.01) == "raised"
            assert time.monotonic() - started < 25, "it was heard of only when the time-out was over"
        say(store, "main", "last")
        assert [message.text for message in store.get_history("main")] == ["first", "last"]


# Code that catches a TimeoutError catches OSErrors, and a ConnectionError with it; so it is with a ValueError and a
# TypeError, errors of a value. One of each pair is raised in every story, both where a thread is alone.
KINDS = [deep(kind) if kind in {"connection", "type"} else kind for kind in RAISED]


@pytest.mark.parametrize("kind", RAISED)
def test_what_a_signals_handler_raises_reaches_the_caller(tmp_path: Path, kind: str) -> None:
    run(alone, f"sqlite:///{tmp_path / 'memory.db'}", kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", [among_others, at_a_lock])
def test_so_it_does_beside_others(tmp_path: Path, story: Callable[[str, str], None], kind: str) -> None:
    run(story, f"sqlite:///{tmp_path / 'memory.db'}", kind)


@pytest.mark.parametrize("kind", first(1, RAISED))
def test_so_it_does_in_memory(kind: str) -> None:
    run(alone, "sqlite://", kind)


def in_the_backend(kind: str) -> None:
    """Between two attempts, and in one: what a handler raises is no fault of a backend's."""
    interrupting = DelayedSignal(RAISED[kind])
    attempts: list[bool] = []

    class Runtime:
        clock = staticmethod(time.monotonic)

        async def sleep(self, seconds: float) -> None:
            time.sleep(seconds)  # noqa: ASYNC251 - as the blocking store does

    async def fail(retry: bool, _deadline: float) -> Any:
        attempts.append(retry)
        raise MemoryStoreBackendError("down", outcome="not_written", transient=True)

    sender = RetryingSender(None, Settings(timeout=60), Runtime())  # type: ignore[arg-type]  # it is asked for nothing else
    for _ in range(10):
        coroutine = sender.send_with_retries(fail)
        assert interrupting.became(lambda: coroutine.send(None), 0.02) == "raised"  # noqa: B023 - called at once
    assert len(attempts) < 500


@pytest.mark.parametrize("kind", KINDS)
def test_so_it_does_between_attempts(kind: str) -> None:
    run(in_the_backend, kind)
