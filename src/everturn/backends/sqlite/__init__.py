"""SQLite inside the process: the default backend, and the entry point of the scheme `sqlite`.

    __init__.py     this: URLs and options
    backend.py      the protocol's operations; async_backend.py runs them for an event loop
    group_commit.py       group commit: who writes when; transaction.py how
    apply_change.py      what a change does; fork_session.py, maintenance.py the larger ones
    reads.py        what a read does; listing.py and verify.py across sessions
    transfer.py        sessions in and out, for copies between backends
    connections.py  connections and locks; child_processes.py closes them for a fork; errors.py SQLite's errors as ours
    page_checksums.py        page checksums; clock.py the time that decides what has expired
    schema.py       schema/*.sql, the stored form by version

The .sql files hold the statements of the module they are named after; listing.py shares reads.sql, fork_session.py and
verify.py share maintenance.sql.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everturn.backends._shared.options import namespace, switch
from everturn.core.masking import MASK
from everturn.errors import InvalidInput, MemoryStoreBackendError
from everturn.private_files import MODE, file_mode

if TYPE_CHECKING:
    from everturn.backends.sqlite.async_backend import AsyncSqliteBackend
    from everturn.backends.sqlite.backend import SqliteBackend
    from everturn.backends.sqlite.database import Database

_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")


def _synchronous(value: object) -> str:
    level = str(value).upper()
    if level not in _LEVELS:
        raise InvalidInput(f"{value!r} is not one of {', '.join(_LEVELS)}", path="synchronous")
    return level


def _vfs(value: object) -> str | None:
    return None if value is None else str(value)


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "namespace": namespace,
    "synchronous": _synchronous,
    "vfs": _vfs,
    "page_checksums": switch("page_checksums"),
    "file_mode": file_mode,
    "read_only": switch("read_only"),
}


def open(url: str, options: Mapping[str, Any], deadline: float) -> SqliteBackend:  # noqa: A001 - the protocol's name
    """Open or create the file that a URL names. Raises InvalidInput, SchemaTooNew, MemoryStoreBackendError."""
    with _imports():
        from everturn.backends.sqlite.backend import SqliteBackend

        database = _database(url, options)
    _open_file(database, deadline)
    return SqliteBackend(database)


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> AsyncSqliteBackend:
    """The same, off the event loop."""
    with _imports():
        from everturn.backends.sqlite.async_backend import AsyncSqliteBackend

        database = _database(url, options)
    await asyncio.get_running_loop().run_in_executor(None, _open_file, database, deadline)
    return AsyncSqliteBackend(database)


@contextmanager
def _imports() -> Iterator[None]:
    """Modules are files, too: one that cannot be opened is an error of ours."""
    try:
        yield
    except OSError as exc:
        text = f"sqlite: a module of everturn cannot be read; check the limit on open files ({exc})"
        raise MemoryStoreBackendError(text, outcome="not_written") from exc


def _database(url: str, options: Mapping[str, Any]) -> Database:
    from everturn.backends.sqlite.database import Database

    return Database(
        path_in(url),
        namespace=options.get("namespace", ""),
        synchronous=options.get("synchronous", "FULL"),
        vfs=options.get("vfs"),
        checksums=options.get("page_checksums", True),
        mode=options.get("file_mode", MODE),
        read_only=options.get("read_only", False),
    )


def path_in(url: str) -> str:
    """The path in a URL: three slashes for a relative one, four for an absolute one, two for memory ("")."""
    from urllib.parse import unquote

    rest = url.partition("://")[2]
    if rest and not rest.startswith("/"):
        shown = MASK if "@" in rest else rest  # then it was meant for a server, and may have a password
        raise InvalidInput(
            f"write sqlite:///{shown} (three slashes) for a relative path, sqlite:////... (four) for an absolute one",
            path="url",
        )
    path = unquote(rest[1:])
    if "\0" in path:
        raise InvalidInput("a path has no NUL", path="url")
    if rest == "/":
        raise InvalidInput("names no file; sqlite:// (two slashes) is in memory", path="url")
    return "" if path == ":memory:" else path


def _open_file(database: Database, deadline: float) -> None:
    from everturn.backends.sqlite.errors import translated

    with translated(database.name):
        database.open(deadline)
