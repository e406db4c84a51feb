"""`snapshot_db` as a test sees it: the public classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from everturn.testing.golden import subprocesses
from everturn.testing.golden.database_file import DatabasesOfTest
from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
from everturn.testing.golden.masks import Mask

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _raised_here(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Raise our errors as if they came from the line in the test: our own frames are no help to a reader."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except (GoldenError, SnapshotMismatch) as exc:
            raise type(exc)(str(exc)) from None

    return call


class GoldenDatabase:
    """One SQLite file of a test, and the artifacts that it is compared with."""

    def __init__(self, databases: DatabasesOfTest, name: str) -> None:
        self._databases = databases
        self._file = databases.file(name)

    @property
    @_raised_here
    def path(self) -> Path:
        """The file of this test alone: a copy of its start, or no file yet. Any process may work on it."""
        return self._file.path()

    @_raised_here
    def mask(
        self,
        *columns: str,
        pattern: str | None = None,
        types: str | Iterable[str] = (),
        missing_ok: bool = False,
    ) -> None:
        """Mask volatile values in all comparisons that follow. Equal values must still be in the same places.

        `columns`: 'table.column', with '*' for any part of a name; all text, if none are named. Masked in them: matches
        of the regular expression `pattern`, values of `types` (uuid, ulid, timestamp; epoch, for numbers in named
        columns), or whole values, if neither is given. NULL stays NULL, and the type of a value is still compared.

        Columns named in one call may refer to each other by short strings and integers; longer values are the same
        wherever they are. A mask that finds nothing, in the file or its artifact, fails the test; `missing_ok` lets it.
        """
        self._file.masks.append(Mask.of(columns, pattern=pattern, types=types, missing_ok=missing_ok))

    @_raised_here
    def check(self, stage: str) -> None:
        """Compare the file with the artifact of this stage now; in an update, write it when the test passes.

        Raises SnapshotMismatch, with the difference.
        """
        if not stage.strip():
            raise GoldenError("a stage needs a name, such as check('after the first rollback')")
        self._file.check(stage)


class SnapshotDb(GoldenDatabase):
    """A test's SQLite file; `snapshot_db["name"]` is another one. `run` calls a function in a new process."""

    def __init__(self, databases: DatabasesOfTest) -> None:
        super().__init__(databases, "")
        self.timeout: float = subprocesses.TIMEOUT
        """Seconds that `run` and `kill_during` give a function before they kill it."""

    @_raised_here
    def __getitem__(self, name: str) -> GoldenDatabase:
        """Get the database of that name, with its own start (database= in the mark) and its own artifacts."""
        return GoldenDatabase(self._databases, name)

    @_raised_here
    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
        """Call a function in a new process. Returns its result, raises its error.

        It may be anything at the top of a module, a test module too, in any import mode; a coroutine function is run
        to its end. Arguments, result and error are pickled. May be called from several threads at once.
        """
        __tracebackhide__ = True
        return subprocesses.run(function, args, kwargs, timeout=self.timeout)

    @_raised_here
    def kill_during(self, function: Callable[..., object], /, *args: Any, at: int, **kwargs: Any) -> str:
        """Call a function in a new process that dies of kill -9 just before its SQL statement number `at`, from 1.

        Statements of sqlite3 and apsw count, BEGIN, COMMIT and those of triggers too. Returns the statement that did
        not run. Raises ValueError if the function was done before.
        """
        __tracebackhide__ = True
        return subprocesses.kill_during(function, args, kwargs, at=at, timeout=self.timeout)
