"""Facts about the machine that a ratio may depend on. Never a path, a host name or a user."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import time
from pathlib import Path

import apsw

from benchmarks.backends import BACKENDS
from benchmarks.contenders.on_sqlite import PEERS
from everturn.bench.contenders import EVERTURN


def facts(directory: Path) -> dict[str, str | float | None]:
    """Versions, cores, and what one small synced write costs in the directory that holds the databases."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite (apsw)": apsw.sqlite_lib_version(),
        "sqlite (Python's own, used by the peers)": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count() or 0,
        "synced 4 KiB write, us": round(_synced_write(directory) * 1e6),
    }


class OtherWork:
    """The number of processors that other programs kept busy since this was made. Known on Linux only."""

    def __init__(self) -> None:
        """Start to watch."""
        self._start, self._elsewhere = time.monotonic(), _seconds_elsewhere()

    def processors(self) -> float | None:
        """The mean since the start; None where the system does not say."""
        now = _seconds_elsewhere()
        if now is None or self._elsewhere is None:
            return None
        return round(max(0.0, now - self._elsewhere) / (time.monotonic() - self._start), 2)


def work_of_others(seconds: float) -> float | None:
    """Watch the machine for so many seconds, and return the number of processors that other programs kept busy."""
    watched = OtherWork()
    time.sleep(seconds)
    return watched.processors()


def _seconds_elsewhere() -> float | None:
    """Processor seconds of all processes but this one and the children it has waited for."""
    try:
        _, *ticks = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, ticks[:8])
    busy = (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4])


def versions() -> dict[str, str]:
    """The installed version of everything that is measured."""
    found = {}
    servers = [entrant for backend in BACKENDS for entrant in backend.everyone]
    for name in sorted({name for entrant in (EVERTURN, *PEERS, *servers) for name in entrant.distributions}):
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
