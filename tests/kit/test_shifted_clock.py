"""The clock of a worker process: every way to ask for the time sees the shift, and nothing else does."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time

import pytest

SCRIPT = """
import ctypes, json, sqlite3, sys, time
from datetime import UTC, datetime
from everturn.testing.workers.shifted_clock import ShiftedClock
clock = ShiftedClock()
seen = []
for seconds in json.loads(sys.argv[1]):
    clock.shift(seconds)
    sqlite = sqlite3.connect(":memory:").execute("SELECT (julianday('now') - 2440587.5) * 86400").fetchone()[0]
    seen.append([time.time(), time.time_ns() / 1e9, datetime.now(UTC).timestamp(), sqlite, time.monotonic()])
print(json.dumps(seen))
"""
FORWARD = 4  # the index of the clock that only goes forward


def times(*shifts: float) -> list[list[float]]:
    """Shift the clock of a new process, several times, and return what each way to ask for the time gave."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(shifts)], capture_output=True, check=True)
    found: list[list[float]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="elsewhere only Python's time.time is shifted"
)
@pytest.mark.parametrize("shift", [60.0, -60.0, 0.25, -0.25, 86_400.0])
def test_every_way_to_ask_for_the_time_sees_the_shift(shift: float) -> None:
    right, shifted, again = times(0.0, shift, 0.0)
    for before, there, after in zip(right[:FORWARD], shifted[:FORWARD], again[:FORWARD], strict=True):
        assert before + shift - 0.01 <= there <= after + shift + 0.01


def test_clocks_that_only_go_forward_and_other_processes_are_left_alone() -> None:
    began = time.time()
    right, shifted = times(0.0, 3600.0)
    assert shifted[FORWARD] - right[FORWARD] < 60
    assert time.time() - began < 60
