"""Cases in which servers' clocks let a late request be applied, and which the judge therefore tolerates. Pure.

`clock` tells the master's time at a true moment. docs/decisions/020-late-requests.md says why they are left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from everturn.backends._shared.server_clock import REQUEST_LIFE
from tests.simulation.network import Attempt
from tests.simulation.records import Seen

Clock = Callable[[float], float]


def is_set_back(attempt: Attempt, now: float, clock: Clock) -> bool:
    """Whether, since a request was sent, its server's clock was set back by more than its life, but not its age."""
    age = now - attempt.sent
    seconds = age - (clock(now) - clock(attempt.sent))
    return attempt.until - attempt.sent < seconds < age


def is_hidden(
    attempt: Attempt,
    now: float,
    changed: Iterable[float],
    erased: Iterable[float],
    clock: Clock,
    steps: Callable[[float, float], list[float]],
) -> bool:
    """Whether another server's clock hid from this one that a request is late: see records.OTHER_CLOCK.

    `changed` are the moments at which other calls changed the session, or set a fence ahead of the clock to now;
    `erased` those at which it was erased.
    """
    issued, sent = attempt.issued, attempt.sent
    if issued is None:
        return False
    if any(moment > sent and clock(moment) < issued for moment in changed):
        return True
    return is_forgotten([moment for moment in erased if moment > sent], now, clock, steps)


def is_forgotten(
    erased: Iterable[float], now: float, clock: Clock, steps: Callable[[float, float], list[float]]
) -> bool:
    """Whether the tombstone of an erasure expired since: see records.FORGOTTEN."""
    return any(clock(later) > clock(moment) + REQUEST_LIFE for moment in erased for later in steps(moment, now))


def has_ended(states: Sequence[Seen], since: float, now: float, clock: Clock) -> bool:
    """Whether a life ran out since a moment: with it goes whatever could tell of a request."""
    for place, seen in enumerate(states):
        after = states[place + 1] if place + 1 < len(states) else None
        until = now if after is None else after.since
        is_last = after is None or after.life != seen.life
        if is_last and until > since and seen.expires is not None and clock(until) >= seen.expires:
            return True
    return False
