"""A fork in steps: the parameters of each step, and the meaning of its answer. Pure.

The server copies, and keeps what is copied so far where nobody looks (schema/functions/14-forks.sql). A fork that runs
out of time leaves it there, and the next one of the same state into the same session goes on with it.
"""

from __future__ import annotations

from typing import Any

from everturn.backend import ForkRequest
from everturn.backends.postgres.change_wire import RequestWindow, encode_fork
from everturn.core.codec import missing
from everturn.errors import MemoryStoreBackendError
from everturn.transfer.protocol import STAGED_FOR

STEP = 1000  # entries copied in one transaction: writers to the session wait no longer than for the first of these
SHARE = 2.0  # of the longest step so far: as much time must be left for the next one


class ForkProgress:
    """A fork under way, as one caller sees it. `began` and `deadline` are monotonic."""

    def __init__(self, request: ForkRequest, began: float, deadline: float) -> None:
        self._request = request
        self._began = began
        self._deadline = deadline
        self._no: int | None = None  # of the staged copy; None: the next step looks at the source
        self._lost: int | None = None  # seq that was not there when the copy before this one was made
        self._most = 0  # entries that were to be copied after the first step
        self._longest = 0.0

    def parameters(self, window: RequestWindow) -> tuple[Any, ...]:
        """Give the parameters of fork_v1, behind the namespace and before the patience."""
        request = self._request
        at = (request.at, None) if isinstance(request.at, str) else (None, request.at)
        return request.source, *at, encode_fork(request, window), self._no, STEP, STAGED_FOR

    def is_settled(self, row: Any, sent: float, now: float) -> bool:
        """Whether the answer to a step is that of the fork. Raises MemoryStoreBackendError, "not_written", if there is
        no time for another step, and CorruptEntry if an entry is lost."""
        status, _, _, no, rest, *_ = row
        if status == "moved":  # the copy has gone, or something that it lacks was reclaimed meanwhile: look again
            if rest < 0 and (self._no is None or self._lost == -rest):
                raise missing(self._request.source, -rest)
            self._no, self._lost = None, -rest or None
        elif status == "staged":
            self._no = no
            self._most = max(self._most, rest)
            self._longest = max(self._longest, now - sent)
            if now + self._longest * SHARE > self._deadline:
                raise self._out_of_time(rest, now)
        return status not in ("moved", "staged")

    def _out_of_time(self, rest: int, now: float) -> MemoryStoreBackendError:
        done = self._most - rest + STEP
        needed = (now - self._began) * (rest + done) / done
        return MemoryStoreBackendError(
            f"the time-out was too short for a fork of session {self._request.source!r}: {rest:,} entries are left to "
            f"copy. What was copied is kept for {STAGED_FOR / 60:.0f} minutes: fork the same state again, which goes "
            "on (where the session changes meanwhile, name a snapshot), or fork from a store opened with a timeout "
            f"of about {needed * 1.5:.0f} s",
            outcome="not_written",
        )
