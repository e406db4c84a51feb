"""ThreadLock: one change of a thread at a time, within one saver. For speed only; the store's versions keep it safe.

LangGraph puts a checkpoint while the writes of its tasks are still under way. Without a lock the two would conflict in
the store, and the one that lost would read the thread and try again, which is slow.
"""

from __future__ import annotations

import asyncio
import os
import threading

PATIENCE = 1.0  # seconds to wait; then go ahead, since correctness does not depend on the lock
MOST = 1024  # locks that are kept


class ThreadLock:
    """One lock for each session, shared by threads, or by the tasks of one event loop."""

    def __init__(self, *, blocking: bool) -> None:
        """`blocking`: use thread locks, whose coroutines never suspend; else asyncio locks."""
        self._new_lock = threading.Lock if blocking else asyncio.Lock
        self.locks: dict[str, threading.Lock | asyncio.Lock] = {}
        self._process = os.getpid()

    def hold(self, session_id: str) -> _HeldLock:
        """Return the lock of a session, for `async with`. Entering waits until it is free, or PATIENCE is over."""
        lock = self.locks.get(session_id)
        if lock is None or self._process != os.getpid():
            lock = self._add(session_id)
        return _HeldLock(self, session_id, lock)

    def _add(self, session_id: str) -> threading.Lock | asyncio.Lock:
        if len(self.locks) >= MOST or self._process != os.getpid():
            # Drop all: nearly all are free; or this is the child of an os.fork, where their holders do not exist. A
            # holder that is left out conflicts in the store, as another process would.
            self.locks, self._process = {}, os.getpid()
        return self.locks.setdefault(session_id, self._new_lock())


class _HeldLock:
    """The context manager of `hold`. A class, because a generator takes twice as long, at every step of a graph."""

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
            # Its holder may never release it: a KeyboardInterrupt can come right after `acquire`.
            self._owner.locks.pop(self._session_id, None)

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._lock.release()


async def _taken(lock: asyncio.Lock) -> bool:
    """Acquire a lock within PATIENCE. Returns whether it was acquired."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await lock.acquire()
    except TimeoutError:
        return False
