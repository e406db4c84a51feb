"""Stops a call at a chosen point, so that a race is made instead of waited for.

Three kinds of point: calls into a driver's C code (`sys.setprofile`), instructions of Python code (`sys.settrace`),
suspensions of a coroutine. The caller decides what happens at the point.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
AtStop = Callable[[int, str], None]

_OURS = str(Path(__file__).parents[1])  # all of everturn.testing
_FLAG = "_asyncio_future_blocking"
_STDLIB = sysconfig.get_path("stdlib")
_PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))

# Modules whose C functions reach outside the process.
_DRIVERS = ("sqlite3", "_sqlite3", "apsw", "_socket", "_ssl", "select", "psycopg_binary", "psycopg_c", "_io", "fcntl")
# psycopg's C part is compiled so that its calls are not visible; these Python functions call into it.
_PSYCOPG_CALLS = frozenset({"execute", "executemany", "fetchone", "fetchall", "commit", "rollback", "wait"})
_IO_CALLS = frozenset(
    {"open", "read", "readall", "readline", "readlines", "write", "writelines", "flush", "close", "truncate"}
)
_OS_CALLS = frozenset(
    {
        *("open", "read", "pread", "write", "pwrite", "writev", "sendfile", "fsync", "fdatasync", "rename", "replace"),
        *("remove", "unlink", "link", "symlink", "truncate", "ftruncate", "mkdir", "rmdir", "close", "lockf"),
        *("stat", "listdir", "scandir"),
    }
)


@cache
def _of_driver(kind: type) -> str | None:
    """Find the driver of a type or of one of its bases; None if there is none."""
    roots = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((root for root in roots if root in _DRIVERS), None)


def driver_call(function: Any) -> str | None:
    """Name a C function that may touch stored data; None for any other."""
    owner = getattr(function, "__self__", None)
    name: str = getattr(function, "__name__", "")
    if isinstance(owner, ModuleType):
        root: str | None = owner.__name__.partition(".")[0]
    else:
        kind = getattr(function, "__objclass__", None) if owner is None else owner
        if not isinstance(kind, type):
            kind = type(kind)
        root = _of_driver(kind)
        name = f"{kind.__name__}.{name}"
    if root in {"posix", "nt"}:
        return name if name in _OS_CALLS else None
    if root in {"_io", "io"}:
        return name if name.rpartition(".")[2] in _IO_CALLS and not name.startswith(("StringIO", "BytesIO")) else None
    return name if root in _DRIVERS else None


class Breakpoint:
    """Counts the points that a call passes, and stops it at the n-th. One call at a time; inactive between calls.

    `watch_threads` must have been called before the target starts threads of its own, or their calls are not seen.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._n = 0
        self._at_stop: AtStop | None = None
        self._lock = threading.Lock()

    def watch_threads(self) -> None:
        """Watch the driver calls of this thread, and of every thread started from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def unwatch(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def arm(self, n: int, at_stop: AtStop) -> None:
        """Count from now on, and call `at_stop(n, name)` at the n-th point. n = 0 only counts."""
        self.passed, self._n, self._at_stop = 0, n, at_stop

    def disarm(self) -> int:
        """Stop counting. Returns how many points were passed."""
        self._at_stop = None
        return self.passed

    def _pass(self, name: str) -> None:
        with self._lock:
            self.passed += 1
            at_stop = self._at_stop if self.passed == self._n else None
        if at_stop is not None:
            at_stop(self._n, name)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._at_stop is None:
            return
        code = frame.f_code
        if event == "c_call":
            name = driver_call(arg)
            if name is not None and not code.co_filename.startswith(_OURS):
                self._pass(name)
        elif event == "call" and code.co_name in _PSYCOPG_CALLS and _is_psycopg(code.co_filename):
            self._pass(f"psycopg {code.co_name}")

    # --- instructions ------------------------------------------------------------------------------------------------

    def watch_instructions(self) -> None:
        """Watch every instruction of the target's Python code in this thread, until `unwatch_instructions`."""
        sys.settrace(self._trace)

    def unwatch_instructions(self) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "call":
            if not _is_target(frame.f_code.co_filename):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode" and self._at_stop is not None:
            code = frame.f_code
            self._pass(f"{code.co_name} line {frame.f_lineno}")
        return self._trace


@cache
def _is_psycopg(filename: str) -> bool:
    return Path(filename).parent.name == "psycopg"


def _is_target(filename: str) -> bool:
    """Whether code is the target's: neither the kit's nor the standard library's."""
    if filename.startswith((_OURS, "<frozen")):
        return False
    return not filename.startswith(_STDLIB) or filename.startswith(_PACKAGES)


class PausableCoroutine:
    """A coroutine that can be stopped where it suspends: at the n-th suspension, `between` is awaited first.

    `passed` counts suspensions. Everything that the coroutine awaits is passed through to the loop.
    """

    def __init__(self, coroutine: Any, n: int, between: Callable[[], Any]) -> None:
        self.passed = 0
        self._coroutine = coroutine
        self._n = n
        self._between = between

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine = self._coroutine
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                wanted = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            value = error = None
            self.passed += 1
            if self.passed == self._n:
                # The future may be done before we look again. asyncio sets this flag on a future that was yielded and
                # is not yet waited for, so it is taken off while `between` runs, and put back.
                blocking = getattr(wanted, _FLAG, None)
                if blocking:
                    setattr(wanted, _FLAG, False)
                yield from self._between().__await__()
                if blocking:
                    if wanted.done():
                        continue
                    setattr(wanted, _FLAG, True)
            try:
                value = yield wanted
            except BaseException as exc:  # noqa: BLE001 - a cancellation is the coroutine's to see
                error = exc
