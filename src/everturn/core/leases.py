"""Leases: the requests that take, renew and release one, the row that a backend keeps of it, and their rules. Pure.

A lease is the right to work on a session for a while. Its token grows with every holder: a change that names a lease is
applied only while the stored token is that one and its time is not over. So whoever lost it can change nothing with it.
SQLite, DynamoDB and the example backend call `change_lease` and `is_fenced_off`; Redis (_lease.lua) and PostgreSQL do
the same steps where the data is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from everturn.core.requests import LeaseClaim, Status

LONGEST_LEASE = 86_400.0  # seconds: a day
CLOCK_SLACK = 60.0  # seconds: a lease that ends later than the longest one could was taken before a clock was set back


class LeaseRequest(msgspec.Struct, frozen=True, gc=False):
    """Take, renew or release the lease of a session.

    `holder` is the name of the caller, which no other lease has. `token` is the token of the lease to renew or release
    (0: whichever this holder has). `seconds` is how long the lease lasts from now.
    """

    session_id: str
    action: Literal["take", "renew", "release"]
    holder: str
    token: int = 0
    seconds: float = 0.0


class LeaseRow(msgspec.Struct, frozen=True, gc=False):
    """The latest lease of a session. `until` is a time of the backend's clock; 0: it was released.

    `life` is that of the session when it was taken, "" if there was none.
    """

    token: int
    holder: str
    until: float
    life: str


class LeaseOutcome(msgspec.Struct, frozen=True, gc=False):
    """A backend's answer to a LeaseRequest: APPLIED with the lease, LEASE_HELD with that of another, or LEASE_LOST.

    `left` is how many seconds it lasts from now.
    """

    status: Status
    token: int = 0
    until: float = 0.0
    left: float = 0.0


class LeaseReading(msgspec.Struct, frozen=True, gc=False):
    """A backend's answer to who holds the lease of a session. `until` and `left` are as in LeaseOutcome."""

    token: int
    holder: str
    until: float
    left: float


def holder_name(worker: str, since: float, random: str) -> str:
    """Make the name of a holder: the worker, the moment at which it asked by its own clock, and a random part.

    No other lease has that name. Backends compare it as a whole. It has no spaces.
    """
    return f"{worker}:{since:.3f}:{random}"


def told_by(holder: str) -> tuple[str, float | None]:
    """Read the worker, and the moment at which it asked, from a holder's name. A purely random name has neither."""
    parts = holder.rsplit(":", 2)
    return (parts[0], float(parts[1])) if len(parts) == 3 else ("", None)


def held_longest(holders: Iterable[str], now: float) -> float | None:
    """Return for how many seconds the earliest of these holders has had its lease, at most. None: no name tells."""
    asked = [since for _, since in map(told_by, holders) if since is not None]
    return max(now - min(asked), 0.0) if asked else None


def reading_of(row: LeaseRow | None, life: str, now: float) -> LeaseReading | None:
    """Return the lease if it is in force, in this life of the session ("": there is none)."""
    if row is None or not is_held(row, life, now):
        return None
    return LeaseReading(row.token, row.holder, row.until, row.until - now)


def is_held(row: LeaseRow | None, life: str, now: float) -> bool:
    """Whether a lease is in force, in this life of the session ("": there is none)."""
    return row is not None and row.life in ("", life) and now < row.until <= now + LONGEST_LEASE + CLOCK_SLACK


def is_fenced_off(claim: LeaseClaim, row: LeaseRow | None, life: str, now: float) -> bool:
    """Whether a change that names this lease must be refused: another worker has it, its time is over, or its life is
    over."""
    if row is None or not is_held(row, life, now):
        return True
    return row.token != claim.token or claim.holder not in ("", row.holder)


def change_lease(
    request: LeaseRequest, row: LeaseRow | None, life: str, now: float, counts_from: float | None = None
) -> tuple[LeaseOutcome, LeaseRow | None]:
    """Apply a request to the stored row. Returns the answer, and the row to write (None: none).

    A lease lasts from `counts_from` on (None: from now). A holder that takes what it has is told the same token: its
    first request was applied, and the answer was lost. Releasing twice is the same as once.
    """
    until = (now if counts_from is None else counts_from) + request.seconds
    held = is_held(row, life, now)
    is_ours = row is not None and row.holder == request.holder
    if request.action == "take":
        if row is not None and held and not is_ours:
            return LeaseOutcome(Status.LEASE_HELD, row.token, row.until, row.until - now), None
        token = row.token if row is not None and held else (row.token if row else 0) + 1
        taken = LeaseRow(token, request.holder, until, life)
        return LeaseOutcome(Status.APPLIED, token, until, until - now), taken
    if row is None or not is_ours or request.token not in (0, row.token) or row.life not in ("", life):
        return LeaseOutcome(Status.LEASE_LOST), None
    if request.action == "renew":
        if not held:
            return LeaseOutcome(Status.LEASE_LOST), None
        renewed = LeaseRow(row.token, row.holder, until, life or row.life)
        return LeaseOutcome(Status.APPLIED, row.token, until, until - now), renewed
    return LeaseOutcome(Status.APPLIED, row.token), LeaseRow(row.token, row.holder, 0.0, row.life)
