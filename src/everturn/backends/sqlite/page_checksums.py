"""Page checksums, by SQLite's `cksumvfs`: a flipped bit anywhere in a file raises an error (decision 022).

The last eight bytes of every page are the checksum of the rest. The VFS writes it with each page, and compares it with
each page it reads. Knows nothing of sessions or entries.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw

from everturn.errors import Unsupported

RESERVED = 8  # bytes at the end of each page that SQLite leaves to the VFS
_NAME = "cksmvfs"
_AGAIN = 0.001  # seconds before a page is read again: another process may have been writing it

_loading = threading.Lock()
_vfs: str | None = None
_is_missing = False


def vfs() -> str | None:
    """Return the name of the VFS to open files with; None if this installation of apsw has none.

    It is loaded once a process. The default VFS stays what it was, so that other users of apsw notice nothing.
    """
    global _vfs, _is_missing  # noqa: PLW0603 - SQLite's list of VFSes is the process's, too
    if _vfs is None and not _is_missing:
        with _loading:
            if _NAME in apsw.vfs_names():
                _vfs = _NAME
            elif (path := _extension()) is None:
                _is_missing = True
            else:
                _vfs = _loaded(path)
                _is_missing = _vfs is None
    return _vfs


def _extension() -> str | None:
    try:
        from apsw import sqlite_extra  # 18 ms
    except ImportError:
        return None
    try:
        path: str = sqlite_extra.path("cksumvfs")
    except (LookupError, sqlite_extra.NotAvailable):
        return None
    os.close(
        os.open(path, os.O_RDONLY)
    )  # raises if no more files can be opened: else the extension would seem to be missing
    return path


def _loaded(path: str) -> str | None:
    default = apsw.vfs_names()[0]
    db = apsw.Connection(":memory:")
    try:
        db.enable_load_extension(True)  # noqa: FBT003 - of apsw
        db.load_extension(path)
    except (apsw.Error, AttributeError):  # built for another system, or a SQLite that loads no extensions
        return None
    finally:
        db.close()
    apsw.set_default_vfs(default)
    return _NAME


def connect(path: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
    """Open a plain connection that is not a store's. It keeps the checksums up where a file has them."""
    return apsw.Connection(path, flags=flags, vfs=vfs())


def are_kept(db: apsw.Connection) -> bool:
    """Whether the pages of the file have checksums."""
    return db.reserve_bytes() == RESERVED


def reserve(db: apsw.Connection) -> None:
    """Give a file checksums, before its first page is written."""
    db.reserve_bytes(reserve=RESERVED)


def refusal(db: apsw.Connection, path: str, own_vfs: str | None) -> Unsupported | None:
    """Make the error for a file whose checksums we could not keep up; None if we can, or if it has none."""
    if not are_kept(db) or (own_vfs is None and vfs()):
        return None
    why = f"the VFS {own_vfs!r} writes none" if own_vfs else "this installation of apsw has no cksumvfs"
    return Unsupported(
        f"{path}: its pages have checksums, and {why}: it can be read here, and not written. Install apsw from its "
        "wheel, or copy the sessions into a file that was opened with page_checksums=off"
    )


def refuse_damaged(db: apsw.Connection, path: str) -> None:
    """Raise apsw.CorruptError for damage that checksums cannot show: a cut file, or a lost mark in the header."""
    if is_cut(db, path):
        raise apsw.CorruptError("the file ends within a page")
    if is_mark_lost(db, path):
        raise apsw.CorruptError("its header does not say any more that its pages have checksums")


def is_cut(db: apsw.Connection, path: str) -> bool:
    """Whether the file ends within a page: the VFS reads the rest as zeros. (After a crash it may, with a WAL.)"""
    with suppress(FileNotFoundError):
        if Path(f"{path}-wal").stat().st_size:
            return False
    return bool(Path(path).stat().st_size % int(db.pragma("page_size")))


def is_mark_lost(db: apsw.Connection, path: str) -> bool:
    """Whether the header lost the byte that says that pages have checksums: then nobody would check them."""
    kept: int = db.reserve_bytes()
    if kept in (0, RESERVED):
        page = _first(path, int(db.pragma("page_size"))) if not kept else b""
        return len(page) > RESERVED and _checksum(page[:20] + b"\x08" + page[21:-RESERVED]) == page[-RESERVED:]
    return True


def _first(path: str, size: int) -> bytes:
    file = open_file(path)
    try:
        return file.xRead(size, 0) if file.xFileSize() >= size else b""
    finally:
        file.xClose()


def open_file(path: str) -> apsw.VFSFile:
    """Open a file for reading, below the pages. Close it by `xClose`."""
    # By SQLite's own means: closing a descriptor of ours would drop the locks this process has on the file.
    return apsw.VFSFile("", str(Path(path).absolute()), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])


def look_past_damage(db: apsw.Connection) -> None:
    """Stop checking pages on this connection. Close it afterwards: damaged pages may stay in its cache."""
    db.execute("PRAGMA checksum_verification = OFF").fetchall()


def is_damage(exc: BaseException) -> bool:
    """Whether SQLite reports a page that does not match its checksum, or is not valid.

    Or a value of an impossible size: none is written that is half as large (LARGEST_LIMIT in store/options.py).
    """
    if isinstance(exc, apsw.IOError):
        return getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_DATA
    return isinstance(exc, apsw.CorruptError | apsw.TooBigError)


def damaged(db: apsw.Connection, path: str, until: float) -> Iterator[int]:
    """Yield the numbers of the pages that do not match their checksum. Looks at every page.

    Raises TimeoutError after `until` (time.monotonic).

    First it copies the WAL into the file: a crash may have left pages half written, and they are sound as long as the
    WAL has them. A connection that is read-only leaves out the pages that the WAL has.
    """
    if not are_kept(db):
        return
    newer: frozenset[int] = frozenset()
    if db.readonly("main"):
        newer = wal_pages(path)
    else:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    size: int = db.pragma("page_size")
    file = open_file(path)
    try:
        count, rest = divmod(file.xFileSize(), size)
        if rest:
            yield count + 1  # a page that was cut
        for number in range(count):
            if number + 1 not in newer and not _matches(db, file.xRead(size, number * size)):
                time.sleep(_AGAIN)
                if not _matches(db, file.xRead(size, number * size)):
                    yield number + 1
            if time.monotonic() > until:
                raise TimeoutError(f"there was no time for more than {number} pages")
    finally:
        file.xClose()


def wal_pages(path: str) -> frozenset[int]:
    """Read the numbers of the pages that the WAL has, committed or not. Empty without a WAL."""
    found: set[int] = set()
    with suppress(FileNotFoundError), Path(f"{path}-wal").open("rb") as wal:  # SQLite keeps no locks on it
        header = wal.read(32)
        frame = 24 + int.from_bytes(header[8:12], "big")
        while len(header) == 32 and len(start := wal.read(24)) == 24:
            if start[8:16] != header[16:24]:
                break  # of an earlier round: the salts differ
            found.add(int.from_bytes(start[:4], "big"))
            wal.seek(frame - 24, os.SEEK_CUR)
    return frozenset(found)


def _matches(db: apsw.Connection, page: bytes) -> bool:
    return bool(db.execute("SELECT verify_checksum(?)", (page,)).get)


# --- files that another program wrote --------------------------------------------------------------------------------


def accept(path: str) -> str:
    """Rewrite every page with a checksum of its present content, because somebody vouches for it.

    Returns "ok", or the first problem that SQLite's integrity check finds; then the file is left as it is.
    """
    db = connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(30_000)
        look_past_damage(db)
        verdict: str = db.execute("PRAGMA integrity_check(1)").get
        if verdict == "ok" and are_kept(db):
            db.execute("VACUUM")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close()
    return verdict


def stamp(path: str) -> None:
    """Write the checksums of a file's pages, if it has room for them. The file must not be open anywhere."""
    with Path(path).open("r+b") as file:
        header = file.read(24)
        if len(header) < 24 or header[20] != RESERVED:
            return
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        file.seek(0)
        number = 0
        while len(page := file.read(size)) == size:
            number += 1
            file.seek(number * size - RESERVED)
            file.write(_checksum(page[:-RESERVED]))


def _checksum(content: bytes) -> bytes:
    """Compute a checksum as `cksumvfs` does: two sums over little-endian words, each fed by the other."""
    first = second = 0
    for one, other in struct.iter_unpack("<II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second)
