"""Runs a function in a new process: returns its value, raises its error, with a time limit, or a kill at a statement.

It knows nothing of databases; child_main.py counts the statements.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from everturn.testing.golden import pickle_by_name

TIMEOUT = 60.0

_T = TypeVar("_T")
_BOOT = """
import sys
sys.path += [entry for entry in sys.argv[2:] if entry not in sys.path]
from everturn.testing.golden.child_main import main
main(sys.argv[1], sys.argv[2:])
"""


class ProcessDied(RuntimeError):
    """The process ended without a result: killed, crashed, or by os._exit."""


@dataclass(frozen=True)
class ChildRequest:
    """A job for a child process. `call` stays pickled until sys.path is set."""

    call: bytes
    kill_at: int | None


@dataclass(frozen=True)
class ChildResult:
    """The result of a child: `value`, or `raised`. `statements` is the number of SQL statements it ran."""

    value: Any = None
    raised: BaseException | None = None
    traceback: str = ""
    statements: int = 0


def run(function: Callable[..., _T], args: Any, kwargs: Any, *, timeout: float) -> _T:
    """Call the function in a new process. Returns its value, raises its error.

    Raises ProcessDied if the process dies, and TimeoutError, when it has been killed, if it takes longer than that.
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory(prefix="everturn-run-") as folder:
        code = _call(
            Path(folder), ChildRequest(pickle_by_name.dumps((function, args, kwargs)), None), function, timeout
        )
        result = _result(Path(folder), function, code)
    _raise(result)
    value: _T = result.value
    return value


def kill_during(function: Callable[..., object], args: Any, kwargs: Any, *, at: int, timeout: float) -> str:
    """Call the function in a new process, and kill it with -9 just before its SQL statement number `at`.

    Returns that statement. Raises what the function raises before it comes so far, and ValueError if it never does.
    """
    __tracebackhide__ = True
    if at < 1:
        raise ValueError(f"at={at}: the first statement is 1")
    with tempfile.TemporaryDirectory(prefix="everturn-run-") as folder:
        code = _call(Path(folder), ChildRequest(pickle_by_name.dumps((function, args, kwargs)), at), function, timeout)
        last_words = Path(folder) / "killed"
        if code == -signal.SIGKILL and last_words.exists():
            return last_words.read_text("utf-8")
        result = _result(Path(folder), function, code)
    _raise(result)
    raise ValueError(
        f"at={at}: {_name(function)} was done after {result.statements} SQL statements, and was not killed"
        + ("" if result.statements else " (those of sqlite3 and apsw are counted)")
    )


def _call(folder: Path, request: ChildRequest, function: Callable[..., object], timeout: float) -> int:
    """Run a child with this request. Returns its exit code."""
    (folder / "request").write_bytes(pickle.dumps(request))
    command = [sys.executable, "-P", "-X", "faulthandler", "-c", _BOOT, str(folder), *sys.path]
    # A session of its own, so that its own children end with it.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - this Python
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # faulthandler shows on stderr where its threads are
        raise TimeoutError(
            f"{_name(function)} was not done after {timeout:g} s, and was killed; "
            "where it stood is on stderr. snapshot_db.timeout sets the limit"
        ) from None
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        try:
            child.wait(1.0)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def _raise(result: ChildResult) -> None:
    """Raise the child's error, with its traceback as a note. (Notes of some errors are lost when they are pickled.)"""
    __tracebackhide__ = True
    if result.raised is not None:
        if result.traceback:
            result.raised.add_note(f"It was raised in a process of its own:\n{result.traceback}")
        raise result.raised


def _result(folder: Path, function: Callable[..., object], code: int) -> ChildResult:
    try:
        octets = (folder / "result").read_bytes()
    except FileNotFoundError:
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise ProcessDied(f"{_name(function)}: its process {how} before it was done") from None
    result: ChildResult = pickle_by_name.loads(octets)
    return result


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))
