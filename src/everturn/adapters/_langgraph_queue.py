"""Changes of one thread, one after the other within a saver. It reads nothing and changes nothing.

LangGraph puts a checkpoint while what its tasks wrote is still on the way. Side by side the two would meet in the
store: the thread has moved, says its version, and the put is refused, reads, and is made again. That is safe, and slow;
in a queue neither waits longer than the other takes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PATIENCE = 1.0  # seconds; nothing depends on the order, so that who has waited so long goes ahead


class Queue:
    """One place in front for each session. To be shared by threads, or by the tasks of one event loop."""

    def __init__(self, *, blocking: bool) -> None:
        """`blocking`: it is for threads, and its coroutines never suspend."""
        self._new_lock = threading.Lock if blocking else asyncio.Lock
        self._guard = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._process = os.getpid()

    @asynccontextmanager
    async def in_front(self, session_id: str) -> AsyncIterator[None]:
        """Wait until nobody else of this queue is busy with the session, but not for ever."""
        place = self._join(session_id)
        try:
            is_held = await place.take()
            try:
                yield
            finally:
                if is_held:
                    place.lock.release()
        finally:
            self._leave(session_id, place)

    def _join(self, session_id: str) -> _Place:
        with self._guard:
            if self._process != os.getpid():  # who stood there is on the other side of a fork
                self._places, self._process = {}, os.getpid()
            place = self._places.get(session_id)
            if place is None:
                place = self._places[session_id] = _Place(self._new_lock())
            place.wanted += 1
            return place

    def _leave(self, session_id: str, place: _Place) -> None:
        with self._guard:
            place.wanted -= 1
            if not place.wanted and self._places.get(session_id) is place:
                del self._places[session_id]


class _Place:
    def __init__(self, lock: threading.Lock | asyncio.Lock) -> None:
        self.lock = lock
        self.wanted = 0

    async def take(self) -> bool:
        """Whether it is ours now."""
        if not isinstance(self.lock, asyncio.Lock):
            return self.lock.acquire(timeout=PATIENCE)
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.lock.acquire()
        except TimeoutError:
            return False
