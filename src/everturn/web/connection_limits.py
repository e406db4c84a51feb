"""Bounds connections that have not sent a whole request: they wait a few seconds, and only so many of them.

Without it, anybody on this machine could open a few hundred and keep the owner out. It knows nothing of requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 5.0  # seconds for the head of a request: a browser sends it with one write
MOST = 50  # such connections at a time


class Strangers:
    """The connections of one server that are waited for, the oldest first."""

    def __init__(self, *, most: int = MOST, patience: float = PATIENCE) -> None:
        self._most = most
        self._patience = patience
        self._waiting: dict[Bounded, asyncio.TimerHandle] = {}

    def wait_for(self, connection: Bounded) -> None:
        """Give it a few seconds, from its first sign on. The oldest of too many has waited longest, and goes."""
        if connection in self._waiting:
            return
        while len(self._waiting) >= self._most:
            self._drop(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._patience, self._drop, connection)
        self._waiting[connection] = timer

    def forget(self, connection: Bounded) -> None:
        """It has sent a request, or is gone."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, connection: Bounded) -> None:
        self.forget(connection)
        connection.transport.abort()

    def protocol(self, *args: Any, **options: Any) -> Bounded:
        """A connection of the server's, bounded by these rules."""
        return Bounded(self, *args, **options)


class Bounded(H11Protocol):
    """Uvicorn's connection, which by itself waits for ever for the rest of a request."""

    def __init__(self, strangers: Strangers, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._strangers = strangers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._strangers.wait_for(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # what came is a part of a request, the next perhaps
            if not self.transport.is_closing():
                self._strangers.wait_for(self)
        else:
            self._strangers.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._strangers.forget(self)
        super().connection_lost(exc)
