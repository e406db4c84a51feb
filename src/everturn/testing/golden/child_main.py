"""Main of the process in which a test's function runs: calls it, writes the result, and dies at the chosen statement.

subprocesses.py starts it.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from everturn.testing.golden import pickle_by_name
from everturn.testing.golden.subprocesses import ChildRequest, ChildResult, ProcessDied


def main(folder: str, path: list[str]) -> None:
    request: ChildRequest = pickle.loads((Path(folder) / "request").read_bytes())  # noqa: S301 - from our parent
    sys.path[:] = path
    sys.argv[1:] = []
    counter = _Statements(Path(folder) / "killed", request.kill_at)
    if request.kill_at is not None:
        counter.watch()
    result = _outcome(request.call, counter)
    (Path(folder) / "draft").write_bytes(_pickled(result))
    (Path(folder) / "draft").rename(Path(folder) / "result")  # whole or not at all


def _outcome(call: bytes, counter: _Statements) -> ChildResult:
    try:
        function, args, kwargs = pickle_by_name.loads(call)
        value = function(*args, **kwargs)
        if inspect.iscoroutine(value):
            import asyncio  # not for all: it takes a while

            value = asyncio.run(value)
        return ChildResult(value, statements=counter.count)
    except BaseException as exc:  # noqa: BLE001 - it is raised again in the parent
        first = exc.__traceback__.tb_next if exc.__traceback__ is not None else None  # without this very function
        lines = traceback.format_exception(type(exc), exc, first)
        return ChildResult(raised=exc, traceback="".join(lines).rstrip(), statements=counter.count)


def _pickled(result: ChildResult) -> bytes:
    """Pickle the result; if it cannot be pickled, an error that says so."""
    try:
        octets = pickle_by_name.dumps(result)
        pickle_by_name.loads(octets)
        return octets
    except Exception as exc:  # noqa: BLE001 - the parent shows it
        what = result.value if result.raised is None else result.raised
        why = f"{type(exc).__name__}: {exc}"
        error = ProcessDied(f"{what!r} cannot be brought from the process that made it ({why})")
        return pickle_by_name.dumps(ChildResult(raised=error, traceback=result.traceback, statements=result.statements))


class _Statements:
    """Counts the SQL statements of this process, of sqlite3 and apsw, and kills the process before the chosen one."""

    def __init__(self, last_words: Path, kill_at: int | None) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._last_words = last_words
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Watch every connection that is opened from now on."""
        import sqlite3

        import apsw

        connect = sqlite3.connect

        def watched(*args: Any, **kwargs: Any) -> Any:
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(self._seen)
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = watched
        apsw.connection_hooks.append(self._watch_apsw)

    def _watch_apsw(self, connection: Any) -> None:
        import apsw

        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: self._seen(event["sql"]), id=self)

    def _seen(self, sql: str) -> None:
        with self._lock:
            self.count += 1
            if self.count == self._kill_at:
                self._last_words.write_text(sql, "utf-8", errors="replace")
                os.kill(os.getpid(), signal.SIGKILL)
