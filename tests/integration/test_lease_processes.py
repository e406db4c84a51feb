"""Leases and effects of several processes: sleepers, kills, clocks that jump, copies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import EffectInDoubt, LeaseHeld, LeaseLost
from everturn.backends._shared.steady_clock import Clock

WORKER = """
    import os, signal, sys, time
    import everturn
    url, world, mode = sys.argv[1:]
    store = everturn.open(url)

    def pay():
        with open(world, "a") as file:
            file.write("paid\\n")
        if mode == "kill after":
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    if mode == "kill before":
        store.begin_effect("a", "pay")
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "sleep":
        lease = store.lease("a", seconds=0.2)
        print(lease.token, flush=True)
        sys.stdin.readline()  # the parent stops this process, and lets it go on, before it writes a line
        try:
            store.add_messages("a", [{"role": "user", "content": "late"}], lease=lease)
        except everturn.LeaseLost:
            print("fenced off", flush=True)
        sys.exit(0)
    store.once("a", "pay", pay)
"""


def worker(*args: object) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", textwrap.dedent(WORKER), *map(str, args)]
    return subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.mark.parametrize(("mode", "times"), [("kill before", 0), ("kill after", 1)])
def test_a_killed_worker_leaves_the_effect_in_doubt(url: str, tmp_path: Path, mode: str, times: int) -> None:
    world = tmp_path / "world"
    world.touch()
    killed = worker(url, world, mode)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with everturn.open(url) as store:
        with pytest.raises(EffectInDoubt):
            store.once("a", "pay", lambda: pytest.fail("done again"))
        assert [effect.status for effect in store.get_effects("a")] == ["started"]
    assert world.read_text().count("paid") == times


def test_a_worker_that_was_stopped_past_its_lease_is_fenced_off(url: str, tmp_path: Path) -> None:
    with everturn.open(url) as store:
        sleeper = worker(url, tmp_path / "world", "sleep")
        assert sleeper.stdin is not None
        assert sleeper.stdout is not None
        token = int(sleeper.stdout.readline())
        sleeper.send_signal(signal.SIGSTOP)
        assert store.lease("a", wait=60).token > token
        sleeper.send_signal(signal.SIGCONT)
        out, _ = sleeper.communicate("go\n", timeout=60)
        assert out == "fenced off\n"
        assert store.get_history("a") == []


def test_of_processes_that_do_it_at_once_one_does_it(url: str, tmp_path: Path) -> None:
    world = tmp_path / "world"
    everturn.open(url).close()
    workers = [worker(url, world, "do") for _ in range(3)]
    for one in workers:
        one.communicate(timeout=120)
    assert world.read_text() == "paid\n"


# --- clocks that jump, on SQLite: the machine's is the backend's -----------------------------------------------------


class Wall:
    """A wall clock that steps, and a clock of elapsed time beside it."""

    def __init__(self) -> None:
        self.now, self.passed = 1_000_000.0, 0.0

    def open(self, url: str) -> Any:
        """Open a store as a process that starts now."""
        store = everturn.open(url)
        backend: Any = store._operations.backend
        backend._time = Clock(lambda: self.now, lambda: self.passed)
        return store


def test_a_clock_that_jumps_ahead_ends_no_lease_for_processes_that_run_already(url: str) -> None:
    wall = Wall()
    with wall.open(url) as one, wall.open(url) as other:
        lease = one.lease("a", seconds=10)
        wall.now += 3600
        with pytest.raises(LeaseHeld):
            other.lease("a")
        one.save_context("a", "x", "y", lease=lease)


def test_a_process_that_starts_after_the_jump_may_take_the_lease_and_the_first_is_fenced_off(url: str) -> None:
    wall = Wall()
    with wall.open(url) as one:
        lease = one.lease("a", seconds=10)
        wall.now += 3600
        with wall.open(url) as later:
            assert later.lease("a").token > lease.token
        with pytest.raises(LeaseLost):
            one.save_context("a", "x", "y", lease=lease)


def test_a_clock_that_is_set_back_makes_a_lease_last_longer_and_its_holder_can_release_it(url: str) -> None:
    wall = Wall()
    with wall.open(url) as one:
        lease = one.lease("a", seconds=10)
        wall.now -= 3600
        with wall.open(url) as later:
            wall.now, wall.passed = wall.now + 60, wall.passed + 60
            with pytest.raises(LeaseHeld) as caught:
                later.lease("a")
            assert caught.value.left > 3000
            lease.release()
            later.lease("a")


# --- copies, cancellation --------------------------------------------------------------------------------------------


def test_a_copy_and_a_backup_have_the_effects_and_no_lease(url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    with everturn.open(url) as one, everturn.open(target) as other:
        with one.lease("a") as lease:
            one.once("a", "pay", lambda: {"receipt": [1, "\u0000"]}, request={"amount": 20}, lease=lease)
            one.begin_effect("a", "mail", lease=lease)
            assert everturn.copy(one, other).ok
            assert other.get_effects("a") == one.get_effects("a")
            other.lease("a").release()
        one.fail_effect("a", "mail", "no", note="looked")
        assert everturn.copy(one, other).ok
        assert other.get_effects("a") == one.get_effects("a")
        assert other.verify().ok


def test_a_take_that_is_cancelled_holds_nothing(url: str) -> None:
    async def story() -> None:
        async with await everturn.open_async(url) as store:
            for patience in (0, 0.0005, 0.001, 0.002):
                taking = asyncio.ensure_future(store.lease("a", seconds=60)._take())
                await asyncio.sleep(patience)
                taking.cancel()
                await asyncio.wait([taking])
                if not taking.cancelled():
                    await taking.result().release()
                async with store.lease("a", seconds=60):
                    pass

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_asynchronous_lease_is_renewed_while_the_loop_goes_on(url: str) -> None:
    async def story() -> None:
        async with await everturn.open_async(url) as store, store.lease("a", seconds=0.6, renew=True) as lease:
            first, deadline = lease.until, time.monotonic() + 30
            while lease.until < first + 0.6 and time.monotonic() < deadline:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            await store.save_context("a", "x", "y", lease=lease)
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "everturn-lease"]

    asyncio.run(asyncio.wait_for(story(), 60))
