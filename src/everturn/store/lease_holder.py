"""LeaseHolder: a lease as a value that changes can name. leases.py takes, renews and releases it."""

from __future__ import annotations

import time
from os import getpid, urandom

from everturn.backend import LeaseClaim, LeaseOutcome
from everturn.core.leases import holder_name
from everturn.errors import InvalidInput, LeaseLost


def lease_lost(session_id: str, token: int, why: str = "") -> LeaseLost:
    """Make the error for a lease that is not in force any more."""
    reason = why or "another worker has taken it, its time is over, or the session was erased or expired"
    return LeaseLost(
        f"session {session_id!r}: the lease {token} is lost: {reason}. Nothing was changed; stop, or take a new lease "
        "and read the session again",
        session_id=session_id,
        token=token,
    )


class LeaseHolder:
    """A lease of a session: its token, and when it ends. It belongs to the process that took it, not to a fork."""

    def __init__(self, session_id: str, seconds: float, worker: str) -> None:
        self.session_id = session_id
        self.seconds = seconds
        self._holder = holder_name(worker, time.time(), urandom(8).hex())
        self._token = 0  # it is not taken yet
        self._until = 0.0
        self._ends = 0.0  # the same moment by time.monotonic, at the earliest
        self._pid = 0
        self._is_released = False
        self._is_lost = False

    def __repr__(self) -> str:
        state = "released" if self._is_released else "lost" if self._is_lost else f"until {self._until:.3f}"
        return f"<{type(self).__name__} {self._token} of session {self.session_id!r}, {state}>"

    @property
    def token(self) -> int:
        """Number of the lease. Each later lease of the session has a greater one, within a life of the session."""
        return self._token

    @property
    def until(self) -> float:
        """Moment at which it ends unless it is renewed: seconds since 1970, by the backend's clock."""
        return self._until

    @property
    def is_lost(self) -> bool:
        """Whether the lease is known to be over. The backend is not asked, so a worker can look at this between two
        steps."""
        return self._is_lost or self._is_released or time.monotonic() >= self._ends or self._pid != getpid()

    @property
    def claim(self) -> LeaseClaim:
        """Claim that a change carries. Raises LeaseLost in a forked child, InvalidInput if it was never taken."""
        if not self._token:
            raise InvalidInput("this lease was not taken yet: await it, or enter it with `async with`", path="lease")
        if self._pid != getpid():
            raise lease_lost(self.session_id, self._token, "it belongs to the process that this one was forked from")
        return LeaseClaim(self._token, self._holder)

    def _take_over(self, outcome: LeaseOutcome, asked: float, seconds: float) -> None:
        """Note the backend's answer to a request for so many seconds, made at the moment `asked` (time.monotonic)."""
        self._token, self._until, self._pid = outcome.token, outcome.until, getpid()
        self._ends = asked + seconds
