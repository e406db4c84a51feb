"""Measures the resources of this process: file handles, threads, memory."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
from contextlib import suppress
from pathlib import Path

from everturn.testing.workers.messages import Usage

_TASKS, _MEMORY = Path("/proc/self/task"), Path("/proc/self/statm")


def measure() -> Usage:
    """Count handles, threads and memory of this process, after a garbage collection that gives memory back.

    Without /proc, threads are those of Python, and memory is the most that the process ever had.
    """
    gc.collect()
    _trim()
    threads = len(list(_TASKS.iterdir())) if _TASKS.is_dir() else threading.active_count()
    if _MEMORY.exists():
        memory = int(_MEMORY.read_text().split()[1]) * resource.getpagesize()
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Usage(len(os.listdir("/dev/fd")), threads, memory)  # noqa: PTH208 - names only


def _trim() -> None:
    """Give freed memory back to the system (glibc): what a store read whole and let go is not what it keeps."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
