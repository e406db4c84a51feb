"""Facts about the machine that a ratio may depend on. Never a path, a host name or a user."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import time
from pathlib import Path

import apsw

from benchmarks.contenders import EVERTURN, PEERS


def facts(directory: Path) -> dict[str, str | int | float]:
    """Versions, cores, how busy it was already, and what a small synced write costs where the databases go."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite (apsw)": apsw.sqlite_lib_version(),
        "sqlite (Python's own, used by the peers)": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count() or 0,
        "load before the run": round(os.getloadavg()[0], 2),
        "synced 4 KiB write, us": round(_synced_write(directory) * 1e6),
    }


def versions() -> dict[str, str]:
    """The installed version of everything that is measured."""
    found = {}
    for name in sorted({name for entrant in (EVERTURN, *PEERS) for name in entrant.distributions}):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _synced_write(directory: Path) -> float:
    path = directory / "synced-write"
    seconds = []
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            start = time.perf_counter()
            file.seek(0)
            file.write(bytes(4096))
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - start)
    path.unlink()
    return statistics.median(seconds)
