"""Watches the connections to one server, and tells when they fail and when the server answers again."""

from __future__ import annotations

import time

from everturn import events, telemetry
from everturn.core.signal_exceptions import is_interruption


class ConnectionWatch:
    """Tells of lost connections, once an outage, of the end of the outage, and of long waits for a connection."""

    def __init__(self, source: events.Source) -> None:
        self.source = source
        self.lost_at: float | None = None  # since when there is an outage; None: there is none
        self._server: str | None = None

    def lost(self, exc: BaseException | None) -> None:
        """Note that a connection failed. One that a caller gave up, by a signal or by cancelling, is no failure."""
        if exc is not None and (not isinstance(exc, Exception) or is_interruption(exc)):
            return
        is_first = self.lost_at is None
        if is_first:
            self.lost_at = time.monotonic()
        why = events.reason(exc) if exc is not None and str(exc) else type(exc).__name__ if exc else "it was closed"
        events.tell(events.CONNECTION_LOST, self.source, log=is_first, reason=why)

    def answered(self, server: str | None = None) -> None:
        """Note that the server answers. `server` is its name, where another one may have taken over."""
        lost_at, self.lost_at = self.lost_at, None
        if lost_at is not None:
            events.tell(events.RECONNECTED, self.source, seconds=time.monotonic() - lost_at)
            if server != self._server and self._server is not None:
                events.tell(events.FAILED_OVER, self.source, old=self._server, new=server)
        self._server = server

    def waited(self, since: float) -> None:
        """Note that a call waited for a connection since this moment (time.monotonic)."""
        seconds = time.monotonic() - since
        labels = {"db.client.connection.pool.name": self.source.place}
        telemetry.record(telemetry.POOL_WAIT_TIME, self.source.system, seconds, labels)
        if seconds > events.LONG_WAIT:
            events.tell(events.POOL_WAIT, self.source, seconds=seconds)
