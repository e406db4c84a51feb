"""Runs functions of test modules in processes of their own, each with a deadline, and leaves no process behind.

A child is a plain `python -c`; what it is given are strings, and what it says is its stdout.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds after which a test gives up; nothing takes a tenth of it
_CALL = "import sys; from {module} import {name} as main; main(*sys.argv[1:])"


class Child(subprocess.Popen[str]):
    """A process with a session of its own, so that what it forks can be ended with it."""

    def __init__(self, code: str, *args: object) -> None:
        super().__init__(
            [sys.executable, "-X", "faulthandler", "-c", code, *map(str, args)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line it says."""
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def finished(self, last_word: str | None = None) -> str:
        """Wait for its end. Returns what it said; fails if it failed, or hangs (then with the stack of its threads)."""
        try:
            said, complaint = self.communicate(last_word, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGABRT)  # faulthandler shows where its threads are
            self.wait(PATIENCE)
            self._end_group()  # what it forked holds the pipes open
            _, complaint = self.communicate()
            raise AssertionError(f"the child hangs:\n{complaint}") from None
        assert self.returncode == 0, f"the child failed ({self.returncode}):\n{complaint}"
        return said

    def _end_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_all(self) -> None:
        self._end_group()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def children(*calls: tuple[Any, ...]) -> Iterator[list[Child]]:
    """Start a child for each (function or code, *arguments). All that is left of them at the end is killed."""
    started: list[Child] = []
    try:
        for what, *args in calls:
            code = what if isinstance(what, str) else _CALL.format(module=what.__module__, name=what.__name__)
            started.append(Child(code, *args))
        yield started
    finally:
        for child in started:
            child.kill_all()


def run(what: Callable[..., None] | str, *args: object) -> str:
    """Run a function (or code) in a child. Returns what it printed; fails if it fails or hangs."""
    with children((what, *args)) as (child,):
        return child.finished()


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. Fails if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: waited in vain"
        time.sleep(0.001)


async def eventually_async(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds, while the event loop goes on."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: waited in vain"
        await asyncio.sleep(0.001)


_HOLD = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
db.set_busy_timeout(60_000)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
db.close()
print("released", flush=True)
"""


class Lock:
    """The write lock of a database file, in the hands of another process."""

    def __init__(self, child: Child) -> None:
        self._child = child
        assert child.line() == "held"

    def release(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        assert self._child.line() == "released"


@contextmanager
def locked(path: Path) -> Iterator[Lock]:
    """Have another process hold the write lock until `release`, or the end of the block."""
    with children((_HOLD, path)) as (child,):
        yield Lock(child)
