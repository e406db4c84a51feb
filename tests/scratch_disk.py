"""Puts what tests write into a file system in memory: a run syncs some hundred thousand times, at milliseconds each.

A process that is killed leaves there what it would leave on a disk, and no test cuts the power of this machine: those
of power loss simulate their disk. A folder of one's own, in TMPDIR, is kept to; so is the disk where memory is short.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

MEMORY = Path("/dev/shm")  # Linux has it; elsewhere tests write to the disk
ROOM = 6 << 30  # bytes; three workers with their servers take a third of that
_PREFIX = "everturn-tests-"


def use(environment: MutableMapping[str, str] = os.environ) -> Path | None:
    """Make a folder in memory, and name it to all processes of the run. Returns None if the disk is to be used."""
    if "TMPDIR" in environment or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return None
    for left in MEMORY.glob(f"{_PREFIX}*"):
        if not _is_running(int(left.name.removeprefix(_PREFIX))):
            shutil.rmtree(left, ignore_errors=True)
    if min(shutil.disk_usage(MEMORY).free, _available()) < ROOM:
        return None
    folder = MEMORY / f"{_PREFIX}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)  # servers that root may not run are run as another user
    environment["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # ask again
    return folder


def bring_postgres(folder: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Copy PostgreSQL there once, if its user cannot reach it: each server would, and no link leads to another disk."""
    from everturn.testing.servers import ServerError, postgres
    from everturn.testing.servers.binaries import unprivileged_owner

    try:
        found = postgres.postgres_program()
        reachable = postgres._reachable_binaries(found, folder / "binaries", unprivileged_owner())
    except ServerError:
        return  # whoever starts one is told
    if reachable != found.parent:
        environment["EVERTURN_POSTGRES"] = str(reachable / found.name)


def leave(folder: Path, *, keep: bool) -> None:
    """Remove the folder; or keep what pytest keeps of tests that failed, until the next run."""
    for path in folder.iterdir():
        if not keep or not path.name.startswith("pytest-of-"):
            shutil.rmtree(path, ignore_errors=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _available() -> int:
    """Memory that is free or could be, in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
