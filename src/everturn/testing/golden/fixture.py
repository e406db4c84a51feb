"""Owns `snapshot_db` as a test sees it: the public face, and nothing behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from everturn.testing.golden import subprocesses
from everturn.testing.golden.database_file import Case
from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
from everturn.testing.golden.masks import Mask

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _said_here(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Raise what we say as if it were raised where the test called us: the way it took in here is no help."""

    @wraps(method)
    def said(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except (GoldenError, SnapshotMismatch) as exc:
            raise type(exc)(str(exc)) from None

    return said


class Database:
    """One SQLite file of a test, and the artifacts that it is compared with."""

    def __init__(self, case: Case, name: str) -> None:
        self._case = case
        self._file = case.file(name)

    @property
    @_said_here
    def path(self) -> Path:
        """The file of this test alone: a copy of its start, or no file yet. Work on it as you like, from anywhere."""
        return self._file.path()

    @_said_here
    def mask(
        self,
        *columns: str,
        pattern: str | None = None,
        types: str | Iterable[str] = (),
        missing_ok: bool = False,
    ) -> None:
        """Mask volatile values in all comparisons that follow: the same value must still be where it was.

        `columns`: 'table.column', with '*' for any part of a name; all text, if there are none. In these: what matches
        the regular expression `pattern`, or is of `types` (uuid, ulid, timestamp; epoch, for numbers of the columns
        named); whole values, if there are neither. NULL stays NULL, and a type stays the type it is.

        Columns named in one call may refer to each other by short strings and integers; longer values are the same
        wherever they are. A mask that finds nothing, in the file or its artifact, fails the test; `missing_ok` lets it.
        """
        self._file.masks.append(Mask.of(columns, pattern=pattern, types=types, missing_ok=missing_ok))

    @_said_here
    def check(self, stage: str) -> None:
        """Compare the file as it is now with the artifact of this stage; in an update, write that when the test passes.

        Raises SnapshotMismatch, with the difference.
        """
        if not stage.strip():
            raise GoldenError("a stage needs a name, such as check('after the first rollback')")
        self._file.check(stage)


class SnapshotDb(Database):
    """A test's SQLite file; `snapshot_db["name"]` is another. What `run` calls, it calls in a new process."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, "")
        self.timeout: float = subprocesses.TIMEOUT
        """Seconds that `run` and `kill_during` give a function before they kill it."""

    @_said_here
    def __getitem__(self, name: str) -> Database:
        """The database of that name, with a start of its own (database= in the mark) and artifacts of its own."""
        return Database(self._case, name)

    @_said_here
    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
        """Call a function in a new process. Returns what it returned, raises what it raised there.

        It may be anything at the top of a module, a test module too, in any import mode; a coroutine function is run
        to its end. Arguments, result and error are pickled. May be called from several threads at once.
        """
        __tracebackhide__ = True
        return subprocesses.run(function, args, kwargs, timeout=self.timeout)

    @_said_here
    def kill_during(self, function: Callable[..., object], /, *args: Any, at: int, **kwargs: Any) -> str:
        """Call a function in a new process that dies of kill -9 just before its SQL statement number `at`, from 1.

        Statements of sqlite3 and apsw count, BEGIN, COMMIT and those of triggers too. Returns the statement that did
        not run. Raises ValueError if the function was done before.
        """
        __tracebackhide__ = True
        return subprocesses.kill_during(function, args, kwargs, at=at, timeout=self.timeout)
