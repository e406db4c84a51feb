"""Runs functions of test modules in processes of their own, each with a deadline, and leaves no process behind.

A child of a function is forked from a process that has imported its module (warm_parent.py); one of code is a plain
`python -c`. What it is given are strings, and what it says is its stdout.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from tests.integration.warm_parent import Job, WarmParent

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0  # seconds after which a test gives up; nothing takes a tenth of it, but a busy machine may


_STARTING = threading.Lock()


@cache
def _warm_parent() -> WarmParent:
    parent = WarmParent()
    atexit.register(parent.close)
    return parent


class Child:
    """A process with a session of its own, so that what it forks can be ended with it."""

    def __init__(self, what: Callable[..., None] | str, *args: object, imports: tuple[str, ...] = ()) -> None:
        self.returncode: int | None = None
        self._found = ["", ""]
        self._readers: list[threading.Thread] = []
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        (given, stdin), (stdout, said), (stderr, complained) = os.pipe(), os.pipe(), os.pipe()
        self.stdin = io.TextIOWrapper(io.FileIO(stdin, "w"), "utf-8", write_through=True)
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self.stderr = os.fdopen(stderr, encoding="utf-8")
        if isinstance(what, str):
            command = [sys.executable, "-X", "faulthandler", "-c", what, *map(str, args)]
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=given, stdout=said, stderr=complained, start_new_session=True
            )
            self.pid = self._process.pid
            own = [given, said, complained]
        else:
            self._process = None
            self._code, ended = os.pipe()
            job = Job(what.__module__, what.__name__, tuple(map(str, args)), environment, imports)
            own = [given, said, complained, ended]
            with _STARTING:  # by one of several threads
                parent = _warm_parent()
            self.pid = parent.fork(job, own)
        for descriptor in own:
            os.close(descriptor)

    def line(self) -> str:
        """The next line it says."""
        return self.stdout.readline().strip()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end. Returns its exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None and self._process is not None:
            self.returncode = self._process.wait(seconds)
        elif self.returncode is None:
            if not select.select([self._code], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired("a child", seconds)
            code = os.read(self._code, 4)
            os.close(self._code)
            self.returncode = int.from_bytes(code, "big", signed=True) if code else -signal.SIGKILL
        assert self.returncode is not None
        return self.returncode

    def communicate(self, last_word: str | None = None, timeout: float = PATIENCE) -> tuple[str, str]:
        """Say the last word, and wait for its end. Returns all it said and complained of since."""
        found = self._found = ["", ""]

        def read(number: int, stream: Any) -> None:
            found[number] = stream.read()

        pairs = enumerate((self.stdout, self.stderr))
        readers = self._readers = [threading.Thread(target=read, args=pair, daemon=True) for pair in pairs]
        for reader in readers:
            reader.start()
        try:
            if last_word is not None:
                self.stdin.write(last_word)
            self.stdin.close()
        except BrokenPipeError:
            pass  # it has ended
        deadline = time.monotonic() + timeout
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired("a child", timeout, found[0], found[1])
        self.wait(max(1.0, deadline - time.monotonic()))
        return found[0], found[1]

    def finished(self, last_word: str | None = None) -> str:
        """Wait for its end. Returns what it said; fails if it failed, or hangs (then with the stacks of its threads and
        of what it forked)."""
        try:
            said, complaint = self.communicate(last_word)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGABRT)  # faulthandler shows where the threads are
            self.wait()
            for reader in self._readers:
                reader.join(5)
            self._end_group()
            raise AssertionError(f"the child hangs:\n{self._found[1]}") from None
        assert self.returncode == 0, f"the child failed ({self.returncode}):\n{complaint}"
        return said

    def poll(self) -> int | None:
        """Its exit code, or None if it has not ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended, as subprocess.Popen does."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _end_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_all(self) -> None:
        self._end_group()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass


@contextmanager
def children(*calls: tuple[Any, ...], imports: tuple[str, ...] = ()) -> Iterator[list[Child]]:
    """Start a child for each (function or code, *arguments). All that is left of them at the end is killed.

    Those of functions find the `imports` made.
    """
    started: list[Child] = []
    try:
        for what, *args in calls:
            started.append(Child(what, *args, imports=imports))
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


def _hold(path: str) -> None:
    """Hold the write lock of a file until told to let go: the body of a process."""
    db = apsw.Connection(path)
    db.set_busy_timeout(60_000)
    db.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    sys.stdin.readline()
    db.execute("ROLLBACK")
    db.close()
    print("released", flush=True)


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
    with children((_hold, path)) as (child,):
        yield Lock(child)
