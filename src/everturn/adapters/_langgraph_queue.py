"""Changes of one thread, one after the other within a saver. It reads nothing and changes nothing.

LangGraph puts a checkpoint while what its tasks wrote is still on the way. Side by side the two would meet in the
store: the thread has moved, says its version, and the put is refused, reads, and is made again. That is safe, and slow;
in a queue neither waits longer than the other takes.
"""

from __future__ import annotations

import asyncio
import os
import threading

PATIENCE = 1.0  # seconds; nothing depends on the order, so that who has waited so long goes ahead


class Queue:
    """One place in front for each session. To be shared by threads, or by the tasks of one event loop."""

    def __init__(self, *, blocking: bool) -> None:
        """`blocking`: it is for threads, and its coroutines never suspend."""
        self.new_lock = threading.Lock if blocking else asyncio.Lock
        self.guard = threading.Lock()
        self.places: dict[str, _Place] = {}
        self.process = os.getpid()

    def in_front(self, session_id: str) -> _InFront:
        """To wait, in an `async with`, until nobody else of this queue is busy with the session; but not for ever."""
        return _InFront(self, session_id)


class _Place:
    __slots__ = ("lock", "wanted")

    def __init__(self, lock: threading.Lock | asyncio.Lock) -> None:
        self.lock = lock
        self.wanted = 0


class _InFront:
    """See Queue.in_front. A class: as a generator it would take twice as long, at every step of a graph."""

    __slots__ = ("_is_held", "_place", "_queue", "_session_id")

    def __init__(self, queue: Queue, session_id: str) -> None:
        self._queue = queue
        self._session_id = session_id

    async def __aenter__(self) -> None:
        queue = self._queue
        with queue.guard:
            if queue.process != os.getpid():  # who stood there is on the other side of a fork
                queue.places, queue.process = {}, os.getpid()
            place = queue.places.get(self._session_id)
            if place is None:
                place = queue.places[self._session_id] = _Place(queue.new_lock())
            place.wanted += 1
        self._place, self._is_held = place, False
        try:
            if isinstance(place.lock, asyncio.Lock):
                self._is_held = await _taken(place.lock)
            else:
                self._is_held = place.lock.acquire(timeout=PATIENCE)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        place, queue = self._place, self._queue
        if self._is_held:
            place.lock.release()
        with queue.guard:
            place.wanted -= 1
            if not place.wanted and queue.places.get(self._session_id) is place:
                del queue.places[self._session_id]


async def _taken(lock: asyncio.Lock) -> bool:
    """Whether it is ours now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await lock.acquire()
    except TimeoutError:
        return False
