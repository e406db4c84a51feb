"""Turns of one process: its changes to a session go one after the other, so that they do not lose to each other.

Each plans on the head that the one before it wrote, and needs one request. A courtesy and no lock: nothing that is
stored hangs on it, and a change that does not move is passed over. Other processes: head_queue.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock

from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.client import DynamoDBClient

STANDS = 2.0  # seconds after which a change that has not moved is waited for no longer


class LocalTurns:
    """The changes that this process is about to write, by session. Safe between threads and tasks."""

    def __init__(self, client: DynamoDBClient) -> None:
        self._client = client
        self.forget_threads()

    def forget_threads(self) -> None:
        """Begin anew in the child of an os.fork: the threads that wait are in the parent."""
        self._lock = Lock()
        self._places: dict[str, deque[Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, pk: str, deadline: float) -> AsyncIterator[None]:
        """Wait until the changes before this one are written, or do not move.

        Raises MemoryStoreBackendError if that is not before the deadline: then nothing was sent.
        """
        place: Future[None] = Future()
        places: deque[Future[None]] = deque()
        try:
            with self._lock:
                places = self._places.setdefault(pk, places)
                places.append(place)
            while (first := self._before(places, place)) is not None:
                if await self._client.wait_for(first, min(STANDS, deadline - time.monotonic())):
                    continue
                if time.monotonic() >= deadline:
                    raise errors.contended(self._client.name)
                self._leave(pk, places, first)  # passed over: it may never end
            yield
        finally:
            self._leave(pk, places, place)
            place.set_result(None)

    def _before(self, places: deque[Future[None]], place: Future[None]) -> Future[None] | None:
        """Return the change to wait for. None: this one is the first, or was passed over while its process slept."""
        with self._lock:
            return places[0] if place in places and places[0] is not place else None

    def _leave(self, pk: str, places: deque[Future[None]], place: Future[None]) -> None:
        with self._lock:
            if place in places:
                places.remove(place)
            if not places and self._places.get(pk) is places:
                del self._places[pk]
