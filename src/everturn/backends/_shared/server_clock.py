"""Estimate of a server's clock from its replies: never ahead of the real one. Pure; no IO.

A request says when it was issued and after which moment it must not be applied. Both are moments on the server's clock,
so that nobody's clock is compared with another's. Which requests are refused is decided inside the server
(docs/decisions/020-late-requests.md).
"""

from __future__ import annotations

REQUEST_LIFE = 60.0
"""Seconds after which a request that is still under way is not applied any more, however long its caller would wait."""

DRIFT = 0.001  # seconds that a server's clock and our monotonic one may part in a second; a slewed clock does half


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
