"""SQLite files opened to look at them: no byte is written, and no file is created (decision 063).

Knows nothing of sessions or entries. database.py lends the connections out.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import apsw

from everturn.backends.sqlite import page_checksums
from everturn.backends.sqlite.connections import Connection, Stamp, connect, patiently
from everturn.errors import MemoryStoreBackendError, Unsupported

TICK = 0.02  # seconds: two changes of a file within less may leave it with one time of change


class LendsConnections(Protocol):
    """A file of this process, whose connections can be closed between two calls."""

    path: str

    def close_idle(self) -> None: ...


_registry = threading.Lock()
_lookers: weakref.WeakSet[LendsConnections] = weakref.WeakSet()
_writers: weakref.WeakSet[LendsConnections] = weakref.WeakSet()


def add_looker(file: LendsConnections) -> None:
    """Remember a file that is open to be looked at, until it is collected."""
    with _registry:
        _lookers.add(file)


def add_writer(file: LendsConnections) -> None:
    """Remember a file that is open for writing. Those who look at the same in this process connect again.

    SQLite maps the memory that readers share once a process: a look's mapping cannot be written, and every change of
    this process would fail.
    """
    with _registry:
        _writers.add(file)
    _reconnect(file.path)


def remove_writer(file: LendsConnections) -> None:
    """Forget a file that is closed. Those who look at the same in this process write nothing from now on."""
    with _registry:
        was_there = file in _writers
        _writers.discard(file)
    if was_there:
        _reconnect(file.path)


def _reconnect(path: str) -> None:
    with _registry:
        same = [looker for looker in _lookers if _is_same(looker.path, path)]
    for looker in same:
        looker.close_idle()


def _is_written_here(path: str) -> bool:
    with _registry:
        return any(_is_same(writer.path, path) for writer in _writers)


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def connect_to_look(path: str, vfs: str | None, *, namespace: str, synchronous: str, deadline: float) -> Connection:
    """Open a connection that writes nothing, unless this process has the file open for writing.

    Raises Unsupported for a WAL with changes that cannot be read without writing.
    """
    with _kept_in_place(path, deadline):
        flags, seen = apsw.SQLITE_OPEN_READONLY, None
        if _is_written_here(path):
            flags, way = apsw.SQLITE_OPEN_READWRITE, ""
        elif _size(f"{path}-wal"):
            refuse_lone_wal(path)
            way = "?readonly_shm=1"
        else:
            seen, way = _settled(path), "?immutable=1"  # no WAL: the file has everything, and `seen` tells of changes
        db = connect(
            f"file:{quote(path)}{way}",
            flags | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI,
            vfs,
            namespace=namespace,
            synchronous=synchronous,
            query_only=True,
            deadline=deadline,
        )
        db.seen = seen
        with suppress(apsw.IOError, apsw.CorruptError, apsw.NotADBError):  # damage is told by whoever reads
            db.execute("PRAGMA schema_version").fetchall()  # opens the WAL, while it cannot go
    return db


@contextmanager
def _kept_in_place(path: str, deadline: float) -> Iterator[None]:
    """Hold a lock for a block, so that nobody removes the WAL meanwhile: SQLite would create another."""
    file = page_checksums.open_file(path)
    try:
        patiently(lambda: _lock(file, path), deadline)
        yield
    finally:
        with suppress(apsw.Error):
            file.xUnlock(apsw.SQLITE_LOCK_NONE)
        file.xClose()


def _lock(file: apsw.VFSFile, path: str) -> None:
    file.xLock(apsw.SQLITE_LOCK_SHARED)
    if _size(f"{path}-journal"):  # of a file that is just being made: WAL files have none
        file.xUnlock(apsw.SQLITE_LOCK_NONE)
        raise apsw.BusyError(f"{path}-journal is in use")


def refuse_lone_wal(path: str) -> None:
    """Raise Unsupported where a WAL has changes, and the -shm is missing that SQLite needs to read them."""
    if not Path(f"{path}-shm").exists():
        raise Unsupported(
            f"{path}: changes in its -wal are not in the file yet, and without its -shm they cannot be read unless "
            "something is written. Copy the file and its -wal to a place where you may write, and open the copy once "
            "without read_only; or open the file itself so"
        )


def _settled(path: str) -> Stamp:
    """Take the stamp of a file, when its time of change is past: a later change has another."""
    if 0 <= time.time() - Path(path).stat().st_mtime < TICK:
        threading.Event().wait(TICK)  # not time.sleep, by which `tail -f` keeps its pace, and tests move it
    return _stamp(path)


def _stamp(path: str) -> Stamp:
    found = os.stat(path)  # noqa: PTH116 - every read pays for it
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - as above
    except FileNotFoundError:
        return 0


def is_current(db: Connection, path: str) -> bool:
    """Whether a connection shows the file as it is now: nobody has written to it since, or it notices itself."""
    return db.seen is None or (not _size(f"{path}-wal") and _stamp(path) == db.seen)


def refuse_torn(db: Connection, path: str) -> None:
    """Raise a transient MemoryStoreBackendError if the file was changed under a read, which may have seen a mixture."""
    if db.seen is not None and _stamp(path) != db.seen:
        raise MemoryStoreBackendError(
            f"{path}: another process wrote to it during this read; read again", outcome="not_written", transient=True
        )
