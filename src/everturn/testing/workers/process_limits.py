"""Limits of the worker process: the size of a file, and the number of files that it may open."""

from __future__ import annotations

import os
import resource
from itertools import count, filterfalse, islice

from everturn.testing.workers.messages import Limit

_LIMITS = {"fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE}


class ProcessLimits:
    """The limits of this process. Those at its start are kept, to return to."""

    def __init__(self) -> None:
        self._first = {what: resource.getrlimit(number) for what, number in _LIMITS.items()}

    def set(self, job: Limit) -> None:
        """Set one limit. For files, the value is the number that may still be opened."""
        soft, hard = self._first[job.what]
        if job.value is not None:
            soft = job.value
            if job.what == "nofile":
                # The limit is above the numbers of new handles, and a new one takes the lowest that is free, which may
                # be far below the highest: what is closed leaves a gap.
                soft = next(islice(filterfalse(_is_open, count()), job.value, None))
        resource.setrlimit(_LIMITS[job.what], (soft, hard))


def _is_open(descriptor: int) -> bool:
    """Whether a descriptor is open now."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
