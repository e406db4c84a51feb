"""SQLite inside the process: the default backend, and the entry point of the scheme `sqlite` (URLs and options).

An append comes from store/changes.py, and goes down this list:

backend.py          the operations of the protocol; async_backend.py runs them for an event loop
group_commit.py     queue of changes: the thread that leads begins a transaction, and takes a batch
transaction.py      runs and commits the batch; a job of it is the call of apply_change.py that backend.py queued
apply_change.py     one change as SQL: replay, refusal, plan (core/plan_change.py over plan_reader.py), rows written
packed_rows.py      messages of a turn in one row; row_checksums.py tells whether a row, or a line of it, is damaged
session_row.py      the row of a session and the small rows beside it; path_walk.py walks the path to its head

Other operations:

reads.py            reads of one session; visible_ranges.py finds their ranges, log_rows.py fetches these, and
                    lost_entries.py notices lost rows
leases.py           leases taken, renewed and released; effects.py the rows of effects
listing.py          pages of sessions, and text search
fork_session.py     a state of a session copied into a new session
transfer.py         exports and imports, for copies between backends
compaction.py       which rows of a live session can go; maintenance.py removes rows, and erases
verify.py           everything stored, checked; doctor.py checks the file's surroundings, backup.py copies it
health.py           the write lock, the disk and the WAL, for probes

The file:

database.py         connections lent out and taken back; connections.py sets one up
child_processes.py  connections closed before an os.fork
file_paths.py       paths checked, files created; read_only_files.py opens a file without writing to it
page_checksums.py   checksums of pages, by SQLite's cksumvfs
schema.py           migrations in schema/*.sql: the stored form by version
statements.py       loads the .sql file of a module, which has the module's name
errors.py           SQLite's errors as everturn's
"""

from __future__ import annotations

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
    """Open or create the file that a URL names.

    Raises InvalidInput, SchemaTooNew, Unsupported, MemoryStoreBackendError.
    """
    with _imports():
        from everturn.backends.sqlite.backend import SqliteBackend

        database = _database(url, options)
    _open_file(database, deadline)
    return SqliteBackend(database)


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> AsyncSqliteBackend:
    """Open or create the file as `open` does, in a thread: the event loop goes on."""
    with _imports():
        from everturn.backends.sqlite.async_backend import AsyncSqliteBackend

        database = _database(url, options)
    import asyncio  # not above: a program without an event loop needs none of it, and it takes 20 ms

    await asyncio.get_running_loop().run_in_executor(None, _open_file, database, deadline)
    return AsyncSqliteBackend(database)


@contextmanager
def _imports() -> Iterator[None]:
    """Raise MemoryStoreBackendError for a module that cannot be read: too many files may be open."""
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


def library() -> str:
    """Return the version of SQLite that everturn uses."""
    import apsw

    return apsw.sqlite_lib_version()


def path_in(url: str) -> str:
    """Read the path in a URL: three slashes for a relative one, four for an absolute one, two for memory ("").

    Raises InvalidInput for a URL that names no file.
    """
    from urllib.parse import unquote

    rest = url.partition("://")[2]
    if rest and not rest.startswith("/"):
        shown = MASK if "@" in rest else rest  # it was meant for a server, and may have a password
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
