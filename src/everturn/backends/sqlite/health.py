"""Health of a SQLite file: whether its write lock can be had, the disk that is left, the size of the WAL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from everturn.health_report import Health

LITTLE_ROOM = 64 * 2**20  # bytes of disk: less is told
LARGE_WAL = 256 * 2**20  # bytes: a WAL grows without end while a reader pins it


def report(path: str, *, refused: str | None) -> Health:
    """Make the report of a file that could be read. `refused` says why it could not be written."""
    free = shutil.disk_usage(Path(path).absolute().parent).free if path else None
    wal = _size(f"{path}-wal") if path else None
    problems = (*([refused] if refused else []), *_problems(free, wal))
    return Health(
        reachable=True, writable=refused is None, seconds=0.0, problems=problems, disk_free=free, wal_bytes=wal
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - it may go between two looks
    except OSError:
        return 0


def _problems(free: int | None, wal: int | None) -> Iterator[str]:
    if free is not None and free < LITTLE_ROOM:
        yield f"the disk has only {free:,} bytes left; make room"
    if wal is not None and wal > LARGE_WAL:
        yield f"the WAL has {wal:,} bytes: a reader keeps it from shrinking; everturn doctor tells more"
