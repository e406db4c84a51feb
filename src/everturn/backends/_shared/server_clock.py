"""Estimate of a server's clock from its replies, never ahead of the real one; attempts that had no answer. Pure; no IO.

A request says when it was issued and after which moment it must not be applied. Both are moments on the server's clock,
so that nobody's clock is compared with another's. Which requests are refused is decided inside the server
(docs/decisions/020-late-requests.md).
"""

from __future__ import annotations

from collections.abc import Hashable

REQUEST_LIFE = 60.0
"""Seconds after which a request that is still under way is not applied any more, however long its caller would wait."""

SWEPT_AT = 100  # calls without an answer, from which on those that gave up are forgotten
DRIFT = 0.001  # seconds in a second: how fast a server's clock and ours may drift apart; a slewed one does half


class ServerClock:
    """Estimate of one server's clock in seconds, from times in its replies and our monotonic clock.

    A reply that tells time `t`, sent for at `sent` and received at `received`, proves that the server's clock showed at
    least `t` at `received`, and at most `t` at `sent`. The best proof so far is kept, and ages by DRIFT. A reply that
    contradicts it means that the server's clock was set back: then that reply alone counts.
    """

    def __init__(self) -> None:
        self._best: tuple[float, float] | None = None  # (server's time minus monotonic time, when that was proven)

    @property
    def is_known(self) -> bool:
        return self._best is not None

    def learn(self, server_time: float, *, sent: float, received: float) -> None:
        """Learn from the time in a reply. `sent` and `received` are monotonic."""
        least, most = server_time - received, server_time - sent
        if self._best is not None:
            offset, since = self._best
            aged = offset - DRIFT * max(0.0, received - since)
            if least <= aged <= most:
                least = aged
        self._best = (least, received)  # one assignment: threads share this without a lock

    def at(self, moment: float) -> float:
        """Compute the earliest time the server's clock can show at a monotonic moment.

        Raises LookupError before the first reply.
        """
        if self._best is None:
            raise LookupError("no reply has told this server's time yet")
        offset, since = self._best
        return moment + offset - DRIFT * max(0.0, moment - since)

    def window(self, now: float, deadline: float) -> tuple[float, float]:
        """Compute the window of a request sent `now`: when it was issued, and after which it must not be applied.

        Both are moments on the server's clock.
        """
        issued = self.at(now)
        return issued, issued + min(max(0.0, deadline - now), REQUEST_LIFE)


class UnansweredAttempts:
    """Attempts at changes that were sent and not answered. Their server may still carry them out.

    A retry may go to another server, whose clock is behind. A change made there would seem older than the earlier
    attempt. If the first server then takes over again, with that attempt on its way, it would not see that the call was
    carried out. So a retry is held back until the clock of its server has passed the moment at which each earlier
    attempt was issued, or until the time of that attempt is over (docs/decisions/020-late-requests.md).
    """

    def __init__(self) -> None:
        self._of_call: dict[Hashable, tuple[tuple[float, float], ...]] = {}  # (issued, monotonic moment it is over)
        self._swept_at = SWEPT_AT

    def __contains__(self, call: Hashable) -> bool:
        return call in self._of_call

    def add(self, call: Hashable, issued: float, *, sent: float, deadline: float) -> None:
        """Add an attempt. `issued` is on its server's clock; `sent` and `deadline` are monotonic."""
        over = deadline + DRIFT * max(0.0, deadline - sent)
        if len(self._of_call) >= self._swept_at:
            # Calls that gave up, later than they can have another attempt: threads share this without a lock.
            for other, attempts in list(self._of_call.items()):
                if attempts[-1][1] + REQUEST_LIFE < sent:
                    self._of_call.pop(other, None)
            self._swept_at = max(SWEPT_AT, 2 * len(self._of_call))
        self._of_call[call] = (*self._of_call.get(call, ()), (issued, over))

    def hold_back(self, call: Hashable, clock: ServerClock, now: float) -> bool:
        """Say whether a call must not be sent yet to the server with this clock."""
        attempts = self._of_call.get(call, ())
        return any(now <= over and clock.at(now) <= issued for issued, over in attempts)

    def settle(self, call: Hashable) -> None:
        """Forget the attempts of a call that was answered."""
        self._of_call.pop(call, None)
