"""Limits of the worker process: the size of a file, and the number of files that it may open."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from everturn.testing.workers.messages import Limit

_LIMITS = {"fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE}


class ProcessLimits:
    """The limits of this process. Those at its start are kept, to return to."""

    def __init__(self) -> None:
        self._first = {what: resource.getrlimit(number) for what, number in _LIMITS.items()}

    def set(self, job: Limit) -> None:
        """Set one limit. The number of files is counted from those that are open now."""
        soft, hard = self._first[job.what]
        if job.value is not None:
            soft = job.value
            if job.what == "nofile":
                soft += 1 + max(filter(_is_open, [int(entry.name) for entry in Path("/dev/fd").iterdir()]))
        resource.setrlimit(_LIMITS[job.what], (soft, hard))


def _is_open(descriptor: int) -> bool:
    """Whether a descriptor is open now. The one by which the list was read is in the list, and is closed again."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
