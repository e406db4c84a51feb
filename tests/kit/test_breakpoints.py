"""Calls are stopped at driver calls, instructions and awaits, at the number that was asked for."""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.history import Recorder
from everturn.testing.races.breakpoints import Breakpoint, PausableCoroutine, driver_call


def calls_of(work: Any, n: int = 0) -> tuple[int, list[tuple[int, str]]]:
    """Count the driver calls of some work. Returns the count, and where it was stopped."""
    stopper, stops = Breakpoint(), []
    stopper.watch_threads()
    try:
        stopper.arm(n, lambda number, name: stops.append((number, name)))
        work()
        return stopper.disarm(), stops
    finally:
        stopper.unwatch()


@pytest.mark.parametrize(
    ("function", "is_one"),
    [
        (sqlite3.connect(":memory:").execute, True),
        (os.replace, True),
        (os.getpid, False),
        (io.open, True),
        (len, False),
        ([].append, False),
        (io.StringIO().write, False),
    ],
)
def test_a_driver_call_is_one_that_may_touch_what_is_stored(function: Any, is_one: bool) -> None:
    assert (driver_call(function) is not None) == is_one


def test_a_subclass_of_a_driver_is_the_driver() -> None:
    class Mine(sqlite3.Connection):
        pass

    assert driver_call(Mine(":memory:").execute) == "Mine.execute"


def test_a_call_is_stopped_at_its_nth_driver_call() -> None:
    db = sqlite3.connect(":memory:")

    def work() -> None:
        db.execute("SELECT 1").fetchone()
        db.execute("SELECT 2").fetchone()

    assert calls_of(work)[0] == 4
    assert calls_of(work, 3) == (4, [(3, "Connection.execute")])
    assert calls_of(work, 9) == (4, [])
    db.close()


def test_driver_calls_of_threads_started_meanwhile_count(tmp_path: Path) -> None:
    def work() -> None:
        thread = threading.Thread(target=tmp_path.stat)
        thread.start()
        thread.join()

    assert calls_of(work)[0] >= 1


def test_calls_of_the_kit_itself_are_not_counted(tmp_path: Path) -> None:
    """Such as those that record a history: a sweep would stop there, and not in the store."""
    with Recorder(tmp_path / "history.jsonl", "A") as recorder:

        def work() -> None:
            with recorder.call("read", "s") as read:
                read.saw([])

        assert calls_of(work)[0] == 0


def test_nothing_is_counted_while_the_trap_is_not_set() -> None:
    stopper = Breakpoint()
    stopper.watch_threads()
    Path().stat()
    stopper.unwatch()
    assert stopper.passed == 0


def test_python_code_is_stopped_at_an_instruction() -> None:
    stopper, stops = Breakpoint(), []
    total = 0

    def work() -> None:
        nonlocal total
        for number in range(3):
            total += number

    stopper.watch_instructions()
    stopper.arm(5, lambda number, name: stops.append((number, name)))
    work()
    passed = stopper.disarm()
    stopper.unwatch_instructions()
    assert passed > 20
    assert [number for number, _ in stops] == [5]
    assert "work" in stops[0][1]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_coroutine_is_stopped_where_it_awaits(n: int) -> None:
    story: list[str] = []

    async def a() -> str:
        story.append("a1")
        await asyncio.sleep(0)
        story.append("a2")
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        story.append("a3")
        await asyncio.sleep(0.001)
        story.append("a4")
        return "done"

    async def between() -> None:
        await asyncio.sleep(0.01)
        story.append("b")

    async def main() -> tuple[Any, int]:
        pausable = PausableCoroutine(a(), n, between)
        return await pausable, pausable.passed

    result, passed = asyncio.run(main())
    assert (result, passed) == ("done", 3)
    expected = ["a1", "a2", "a3", "a4"]
    assert story == ([*expected[:n], "b", *expected[n:]] if n <= 3 else expected)


def test_an_error_passes_through_a_paced_coroutine() -> None:
    async def a() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def main() -> None:
        await PausableCoroutine(a(), 1, lambda: asyncio.sleep(0))

    with pytest.raises(KeyError):
        asyncio.run(main())
