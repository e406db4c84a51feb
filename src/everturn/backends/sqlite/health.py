"""Health of a SQLite file: whether its write lock can be had, the disk that is left, the WAL, leases and effects.

Leases and effects have no index for this: it would cost every effect, for a look that is seldom (decision 090).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from everturn.backends.sqlite import statements
from everturn.backends.sqlite.connections import Connection
from everturn.core.leases import CLOCK_SLACK, LONGEST_LEASE, held_longest
from everturn.model.health import Health

SQL = statements.load("health.sql")

LOOK = 0.25  # seconds for leases and effects: a probe waits for them
LITTLE_ROOM = 64 * 2**20  # bytes of disk: less is told
LARGE_WAL = 256 * 2**20  # bytes: a WAL grows without end while a reader pins it


def why_not_writable(path: str) -> str | None:
    """Say why this user could not write to a file that is open to be read. (Whether its lock is free is not tried.)"""
    if all(os.access(place, os.W_OK) for place in (path, Path(path).absolute().parent)):
        return None
    return f"{path}: it, or its directory, may not be written by this user"


class OpenWork(msgspec.Struct, frozen=True):
    """The work that is under way in the file, or was left: see Health."""

    oldest_lease: float | None = None
    effects_in_doubt: int | None = None


def open_work(db: Connection, now: float) -> OpenWork:
    """Look for leases that are held, and for effects in doubt."""
    bounds = {"namespace": db.namespace, "now": now, "longest": LONGEST_LEASE + CLOCK_SLACK}
    holders = [holder for (holder,) in db.execute(SQL["held_leases"], bounds)]
    return OpenWork(held_longest(holders, time.time()), db.value(SQL["effects_in_doubt"], bounds))


def report(path: str, work: OpenWork, *, refused: str | None, damage: str | None) -> Health:
    """Make the report of a file that could be read. `refused` says why it could not be written.

    `damage` says why the work could not be looked for. Then other sessions can be read and written all the same.
    """
    free = shutil.disk_usage(Path(path).absolute().parent).free if path else None
    wal = _size(f"{path}-wal") if path else None
    problems = (*(why for why in (refused, damage) if why is not None), *_problems(free, wal))
    return Health(
        reachable=True,
        writable=refused is None,
        seconds=0.0,
        problems=problems,
        disk_free=free,
        wal_bytes=wal,
        oldest_lease=work.oldest_lease,
        effects_in_doubt=work.effects_in_doubt,
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
