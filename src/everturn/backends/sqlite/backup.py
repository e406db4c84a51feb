"""Backup: copies a SQLite file while others write to it. Knows nothing of its content."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from everturn import private_files
from everturn.backends.sqlite import page_checksums

PAGES = 2000  # copied between two progress reports, and two chances to be interrupted


def copy_pages(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Copy every page as of one moment, also while others write. Nobody waits for it. The target must not exist.

    `tell` is called with pages done and pages in all. A page that does not match its checksum is copied as it is, and
    its copy does not match either.
    """
    os.close(private_files.create(target))
    there = page_checksums.connect(str(source), apsw.SQLITE_OPEN_READWRITE)
    here = page_checksums.connect(str(target))
    try:
        there.set_busy_timeout(30_000)
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
