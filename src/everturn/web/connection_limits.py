"""Limits connections that have not sent a whole request: each has a few seconds, and only so many are kept.

Without it, any program on this machine could open a few hundred connections and keep the owner out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 5.0  # for the first part of a request: a browser sends it with one write
MOST = 50  # such connections at a time


class IncompleteRequests:
    """The connections of one server that have not sent a whole request, oldest first."""

    def __init__(self, *, most: int = MOST, seconds: float = REQUEST_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._waiting: dict[LimitedConnection, asyncio.TimerHandle] = {}

    def wait_for(self, connection: LimitedConnection) -> None:
        """Give the connection a few seconds. Where there are too many, the oldest is closed."""
        if connection in self._waiting:
            return
        while len(self._waiting) >= self._most:
            self._drop(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._seconds, self._drop, connection)
        self._waiting[connection] = timer

    def forget(self, connection: LimitedConnection) -> None:
        """Stop the timer of a connection that has sent its request, or is closed."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, connection: LimitedConnection) -> None:
        self.forget(connection)
        connection.transport.abort()

    def protocol(self, *args: Any, **options: Any) -> LimitedConnection:
        """A connection for uvicorn, under these limits."""
        return LimitedConnection(self, *args, **options)


class LimitedConnection(H11Protocol):
    """Uvicorn's connection, which by itself waits for ever for the rest of a request."""

    def __init__(self, incomplete: IncompleteRequests, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._incomplete = incomplete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._incomplete.wait_for(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # this data was part of a request, maybe of the next
            if not self.transport.is_closing():
                self._incomplete.wait_for(self)
        else:
            self._incomplete.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._incomplete.forget(self)
        super().connection_lost(exc)
