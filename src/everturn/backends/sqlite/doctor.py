"""Doctor of a SQLite file: finds settings and conditions that break a promise or slow it down. Changes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from everturn.backends._shared.server_warnings import Examination, Finding
from everturn.backends.sqlite import page_checksums as pages
from everturn.backends.sqlite.connections import Connection
from everturn.core.numbers import size

FIXED = (3, 51, 3)  # the first without the WAL-reset bug
# File systems with unreliable locks, or without memory shared between machines.
REMOTE = ("nfs", "cifs", "smb", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "9p", "afs", "glusterfs", "lustre", "ceph")
LARGE_WAL = 64 * 2**20
LITTLE_ROOM = 256 * 2**20


class FileFacts(msgspec.Struct, frozen=True):
    """Facts about a file that findings depend on."""

    library: tuple[int, ...]
    python_library: tuple[int, ...]  # of Python's own sqlite3, which other programs here may use on the file
    journal: str
    synchronous: str
    wal_bytes: int
    pinned_frames: int  # frames of the WAL that a checkpoint could not copy, because a reader needs them
    free_pages: int
    pages: int
    page_size: int
    file_system: str
    room: int
    mode: int
    checksums: bool = True  # whether its pages have checksums
    can_check: bool = True  # whether this installation of apsw can check them


def examine(db: Connection, path: str) -> Examination:
    """Collect the facts about the file, and its findings."""
    known = _facts_of(db, path)
    facts = (
        ("file", f"{path}, {size(known.pages * known.page_size)}"),
        ("SQLite", f"{_dotted(known.library)}, bundled with apsw {apsw.apsw_version()}"),
        ("Python's sqlite3", f"{_dotted(known.python_library)}{_exposed(known.python_library)}"),
        ("journal", f"{known.journal}, synchronous={known.synchronous}"),
        ("WAL", size(known.wal_bytes)),
        ("free pages", f"{known.free_pages:,} of {known.pages:,}"),
        ("file system", known.file_system or "unknown"),
        ("room on disk", size(known.room)),
        ("permissions", stat.filemode(known.mode)),
        ("page checksums", _checked(known)),
    )
    return Examination(facts, tuple(Finding(path, *wrong) for wrong in wrong_with(known)))


def _facts_of(db: Connection, path: str) -> FileFacts:
    wal = Path(f"{path}-wal")
    frames = taken = 0  # a connection that only looks cannot tell: it would have to copy frames
    if not db.readonly("main"):
        _, frames, taken = db.row("PRAGMA wal_checkpoint(PASSIVE)")  # as any writer does: it waits for nobody
    return FileFacts(
        library=_numbers(apsw.sqlite_lib_version()),
        python_library=_numbers(sqlite3.sqlite_version),
        journal=_journal(db, path),
        synchronous=("OFF", "NORMAL", "FULL", "EXTRA")[db.value("PRAGMA synchronous")],
        wal_bytes=wal.stat().st_size if wal.exists() else 0,
        pinned_frames=max(frames - taken, 0),
        free_pages=db.value("PRAGMA freelist_count"),
        pages=db.value("PRAGMA page_count"),
        page_size=db.value("PRAGMA page_size"),
        file_system=_file_system(path),
        room=shutil.disk_usage(Path(path).absolute().parent).free,
        mode=Path(path).stat().st_mode,
        checksums=pages.are_kept(db),
        can_check=pages.vfs() is not None,
    )


def _journal(db: Connection, path: str) -> str:
    """Tell the journal mode. A connection that opened the file as one that nobody changes reports none."""
    if db.readonly("main"):
        file = pages.open_file(path)
        try:
            if file.xRead(2, 18) == b"\x02\x02":  # versions of the format to write and to read, in the header
                return "wal"
        finally:
            file.xClose()
    mode: str = db.value("PRAGMA journal_mode")
    return mode


def wrong_with(file: FileFacts) -> Iterator[tuple[str, str, str]]:
    """Yield for each finding: the problem, the risk and the fix. Pure."""
    if file.library < FIXED:
        yield (
            f"SQLite {_dotted(file.library)} has the WAL-reset bug",
            "checkpoints that run at once can lose committed turns",
            "pip install -U apsw",
        )
    if file.journal != "wal":
        yield f"journal mode {file.journal}", "writers and readers block each other", "PRAGMA journal_mode = WAL"
    if file.synchronous in {"OFF", "NORMAL"}:
        yield (
            f"synchronous={file.synchronous}",
            "a power cut loses turns that were acknowledged",
            "leave the option out (FULL), or synchronous=FULL in the URL",
        )
    if any(file.file_system.startswith(name) for name in REMOTE):
        yield (
            f"the file is on {file.file_system}",
            "its locks and shared memory do not hold between machines, and a file can be damaged",
            "move it to a local disk, or use redis:// or postgresql://",
        )
    if file.wal_bytes > LARGE_WAL or (file.pinned_frames and file.wal_bytes > LARGE_WAL // 8):
        yield (
            f"the WAL is {size(file.wal_bytes)}" + (", and a reader pins it" if file.pinned_frames else ""),
            "reads get slower, the disk may fill, and erased text stays in it",
            "end long readers (backups, open cursors); it shrinks with the next checkpoint",
        )
    if file.pages > 1000 and file.free_pages > file.pages // 2:
        yield (
            f"{file.free_pages:,} of {file.pages:,} pages are free",
            "the file is more than twice as large as what it holds",
            "everturn compact gives them back",
        )
    if file.room < LITTLE_ROOM:
        yield (
            f"{size(file.room)} are left on the disk",
            "changes will be refused (not_written) once it is full",
            "make room, or move the file",
        )
    if file.mode & stat.S_IWOTH:
        yield (
            "everyone on this machine may change the file",
            "a conversation is private, and only everturn may write it",
            "chmod 600, its -wal and -shm too",
        )
    elif file.mode & stat.S_IROTH:
        yield (
            "everyone on this machine may read the file",
            "a conversation is private",
            "chmod 600, its -wal and -shm too",
        )
    if file.checksums and not file.can_check:
        yield (
            "its pages have checksums, and this installation of apsw has no cksumvfs",
            "it can be read here, unchecked, and not written",
            "pip install --only-binary :all: apsw",
        )


def _file_system(path: str) -> str:
    """Find the kind of file system the file is on; empty where the system does not tell."""
    try:
        mounts = Path("/proc/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    where = os.path.realpath(path)
    found = [line.split(" ")[1:3] for line in mounts]
    holding = [(len(point), kind) for point, kind in found if where.startswith(point.rstrip("/") + "/")]
    return max(holding)[1] if holding else ""


def _checked(file: FileFacts) -> str:
    if file.checksums:
        return "yes" if file.can_check else "yes, but this installation of apsw has no cksumvfs: nothing can be written"
    return "no" if file.can_check else "no; this installation of apsw has no cksumvfs"


def _exposed(version: tuple[int, ...]) -> str:
    """Warn of a library that everturn does not use, but other programs here may."""
    return (
        "" if version >= FIXED else ", not used by everturn; it has the WAL-reset bug, so write nothing here through it"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
