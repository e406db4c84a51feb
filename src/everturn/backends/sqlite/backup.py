"""Backup: copies a SQLite file while others write to it. Knows nothing of its content."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from everturn import private_files
from everturn.backends.sqlite import page_checksums, schema
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.read_only_files import connect_to_look, refuse_torn
from everturn.errors import MemoryStoreBackendError

PAGES = 2000  # copied between two progress reports, and two chances to be interrupted
ATTEMPTS = 5
PATIENCE = 30.0  # seconds for a lock of another process


def copy_pages(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Copy every page as of one moment, also while others write. Nobody waits for it. The target must not exist.

    `tell` is called with pages done and pages in all. A page that does not match its checksum is copied as it is, and
    its copy does not match either. Nothing is written to the source, and no file is created beside it.
    """
    for attempt in range(ATTEMPTS):
        os.close(private_files.create(target))
        try:
            _copy_once(source, target, tell)
        except MemoryStoreBackendError as exc:
            if not exc.transient or attempt == ATTEMPTS - 1:
                raise
            # Another process began to write to a file that was at rest. Its WAL now keeps the moment of our copy.
            target.unlink()
        else:
            return


def is_of_earlier_version(path: Path) -> bool:
    """Whether an earlier everturn wrote the file: it can be copied as it is, and be read only once it is migrated."""
    there = _look(path)
    try:
        return schema.is_earlier(there, str(path))
    finally:
        there.close()


def _look(path: Path) -> Connection:
    deadline = time.monotonic() + PATIENCE
    db = connect_to_look(str(path), page_checksums.vfs(), namespace="", synchronous="FULL", deadline=deadline)
    db.patience.deadline = math.inf
    return db


def _copy_once(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Raises a transient MemoryStoreBackendError if somebody wrote to a file that was at rest."""
    there = _look(source)
    here = page_checksums.connect(str(target))
    try:
        damaged = list(page_checksums.damaged(there, str(source), math.inf))
        page_checksums.look_past_damage(there)
        # A read transaction, held: the pages are those of this moment, so that writers cannot make it start anew.
        there.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        if page_checksums.are_kept(there):
            page_checksums.reserve(here)
            here.execute(
                "CREATE TABLE first (page)"
            )  # gives the file the header by which the VFS knows that it has checksums
        with here.backup("main", there, "main") as copy:
            while not copy.done:
                copy.step(PAGES)
                tell(copy.page_count - copy.remaining, copy.page_count)
        refuse_torn(there, str(source))
        size: int = here.pragma("page_size")
    finally:
        here.close()
        there.close()
    _spoil(target, damaged, size)


def _spoil(path: Path, numbers: Iterable[int], size: int) -> None:
    """Give these pages a wrong checksum: a damaged page must not seem sound because it was copied."""
    with path.open("r+b") as file:
        for number in numbers:
            file.seek(number * size - 1)
            last = file.read(1)
            file.seek(number * size - 1)
            file.write(bytes([last[0] ^ 0xFF]) if last else b"")
