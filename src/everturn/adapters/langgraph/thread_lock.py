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
MOST = 1024  # sessions whose locks are kept


class ThreadLock:
    """One place in front for each session. To be shared by threads, or by the tasks of one event loop."""

    def __init__(self, *, blocking: bool) -> None:
        """`blocking`: it is for threads, and its coroutines never suspend."""
        self._new_lock = threading.Lock if blocking else asyncio.Lock
        self.locks: dict[str, threading.Lock | asyncio.Lock] = {}
        self._process = os.getpid()

    def hold(self, session_id: str) -> _HeldLock:
        """To wait, in an `async with`, until nobody else of this queue is busy with the session; but not for ever."""
        lock = self.locks.get(session_id)
        if lock is None or self._process != os.getpid():
            lock = self._add(session_id)
        return _HeldLock(self, session_id, lock)

    def _add(self, session_id: str) -> threading.Lock | asyncio.Lock:
        if len(self.locks) >= MOST or self._process != os.getpid():
            # Nearly all are done; or who stood there is on the other side of a fork. Who still stands there is met in
            # the store, as any stranger would be.
            self.locks, self._process = {}, os.getpid()
        return self.locks.setdefault(session_id, self._new_lock())


class _HeldLock:
    """See Queue.in_front. A class: as a generator it would take twice as long, at every step of a graph."""

    __slots__ = ("_is_held", "_lock", "_owner", "_session_id")

    def __init__(self, owner: ThreadLock, session_id: str, lock: threading.Lock | asyncio.Lock) -> None:
        self._owner = owner
        self._session_id = session_id
        self._lock = lock

    async def __aenter__(self) -> None:
        if isinstance(self._lock, asyncio.Lock):
            self._is_held = await _taken(self._lock)
        else:
            self._is_held = self._lock.acquire(timeout=PATIENCE)
        if not self._is_held and self._owner.locks.get(self._session_id) is self._lock:
            # Whoever has it may never let it go: an interrupt can come before it knows that it has it.
            self._owner.locks.pop(self._session_id, None)

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._lock.release()


async def _taken(lock: asyncio.Lock) -> bool:
    """Whether it is ours now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await lock.acquire()
    except TimeoutError:
        return False
