"""Makes a consistent copy of a database file that others may have open, with its WAL or journal. Changes nothing there.

Only for a process that opens no database itself: closing a file drops every POSIX lock that the process has on it, also
those of a SQLite library.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.testing.golden.errors import GoldenError

# Where SQLite locks: see "File Locking" and "WAL-mode File Format" in its documentation.
_PENDING = 0x40000000
_RESERVED = _PENDING + 1
_SHARED, _SHARED_SIZE = _PENDING + 2, 510
_WAL_WRITER = 120

PATIENCE = 2.0
_MAGIC = b"SQLite format 3\x00"
_FORMATS = (1, 2)  # rollback journal, WAL
_SIDES = ("-wal", "-journal")
_CHUNK = 1 << 20


def copy(source: Path, target: Path) -> None:
    """Copy everything committed in `source`, with its WAL or hot journal, to `target`, which must not exist.

    We hold the lock that a writer needs, so no writer can interfere. Nothing is created, changed or deleted beside
    `source`. Raises GoldenError if it is not a database, or if a write transaction stays open for 2 s.
    """
    with _opened(source) as main, _no_writer(main, source):
        head = os.pread(main, 100, 0)
        _refuse_foreign(head, source)
        if not any(_beside(source, side).exists() for side in _SIDES):  # with one, the file may be of any size
            _refuse_short(head, os.fstat(main).st_size, source)
        # The main file first. Meanwhile another process may copy pages from the WAL into it (a checkpoint). The WAL
        # still has these pages, because only a writer may restart it, so the two copies together are right.
        _write(main, target)
        for side in _SIDES:
            _copy_side_file(_beside(source, side), _beside(target, side))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def _opened(source: Path) -> Iterator[int]:
    if source.is_dir():
        raise GoldenError(f"{source} is a directory, not a SQLite file: move it away")
    try:
        main = _open(source)
    except FileNotFoundError:
        raise GoldenError(f"{source} does not exist") from None
    except OSError as exc:
        raise GoldenError(f"{source} cannot be opened: {exc.strerror}") from exc
    try:
        yield main
    finally:
        os.close(main)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR)  # a write lock needs it
    except OSError:
        return os.open(path, os.O_RDONLY)


@contextmanager
def _no_writer(main: int, source: Path) -> Iterator[None]:
    """Hold the locks that keep writers out, in either journal mode. The caller closes `main`, which drops its own."""
    deadline = time.monotonic() + PATIENCE
    _wait_for(lambda: _begin_to_read(main), source, deadline)
    shm = _beside(source, "-shm")
    try:
        index = os.open(shm, os.O_RDWR)
    except (FileNotFoundError, PermissionError):
        yield  # no -shm: nobody has it open in WAL mode. Not writable: we cannot keep writers out, but nor can we harm
        return
    try:
        _wait_for(lambda: fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WAL_WRITER), source, deadline)
        yield
    finally:
        os.close(index)


def _begin_to_read(main: int) -> None:
    """Take the lock of a reader, then that of a future writer. Raises BlockingIOError, with no lock held."""
    fcntl.lockf(main, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _PENDING)
    try:
        fcntl.lockf(main, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED)
    finally:
        fcntl.lockf(main, fcntl.LOCK_UN, 1, _PENDING)
    if _is_writable(main):
        try:
            fcntl.lockf(main, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _RESERVED)
        except OSError:
            # The process that has it may be about to commit, and waits until no reader is left.
            fcntl.lockf(main, fcntl.LOCK_UN, _SHARED_SIZE, _SHARED)
            raise


def _is_writable(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _wait_for(lock: Callable[[], None], source: Path, deadline: float) -> None:
    while True:
        try:
            lock()
            return
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as the system likes
            if time.monotonic() > deadline:
                raise GoldenError(
                    f"{source} is locked: a write transaction on it was still open after {PATIENCE:.0f} s. "
                    "Commit it, roll it back or close its connection first (idle connections may stay open)"
                ) from None
            time.sleep(0.002)


def _refuse_foreign(head: bytes, source: Path) -> None:
    if not head:
        return  # an empty file is an empty database
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise GoldenError(
            f"{source} is not a SQLite database: it begins with {head[:16]!r}. "
            "Was it encrypted, cut short, or changed by a tool that took it for text (git autocrlf, git lfs)?"
        )
    if head[18] not in _FORMATS or head[19] not in _FORMATS:
        raise GoldenError(
            f"{source} has file format {head[18]}.{head[19]}: it is from a newer SQLite than this one knows. "
            "Upgrade apsw, which brings SQLite along: pip install -U apsw"
        )


def _refuse_short(head: bytes, size: int, source: Path) -> None:
    """Raise GoldenError for a file that was cut short: SQLite reads missing bytes as zeros, and may find no fault."""
    if head[24:28] != head[92:96]:
        return  # an old SQLite wrote it, that did not keep the size in the header
    page = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (65_536 if page == 1 else page)
    if size < expected:
        raise GoldenError(
            f"{source} was cut short: it has {size:,} bytes, and its header says {expected:,}. Get it whole"
        )


def _write(descriptor: int, target: Path) -> None:
    """Copy through the descriptor that holds the locks: closing another one on the same file would drop them."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with target.open("xb") as out:
        while chunk := os.read(descriptor, _CHUNK):
            out.write(chunk)


def _copy_side_file(side: Path, target: Path) -> None:
    try:
        if side.stat().st_size:
            shutil.copyfile(side, target)
    except FileNotFoundError:
        pass
