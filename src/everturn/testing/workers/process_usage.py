"""Measures the resources of this process: file handles, threads, memory."""

from __future__ import annotations

import gc
import os
import resource
import threading
from pathlib import Path

from everturn.testing.workers.messages import Usage

_TASKS, _MEMORY = Path("/proc/self/task"), Path("/proc/self/statm")


def measure() -> Usage:
    """Count after a garbage collection. Without /proc, threads are those of Python, and memory is the most it had."""
    gc.collect()
    threads = len(list(_TASKS.iterdir())) if _TASKS.is_dir() else threading.active_count()
    if _MEMORY.exists():
        memory = int(_MEMORY.read_text().split()[1]) * resource.getpagesize()
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Usage(len(os.listdir("/dev/fd")), threads, memory)  # noqa: PTH208 - names only
