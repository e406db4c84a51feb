"""Sound stores that live in memory by nature: a list behind a lock, for threads and for tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any


class LockedLists:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[str, list[Any]] = {}

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.lock:
            self.sessions[session_id] = [*self.sessions.get(session_id, []), *deepcopy(list(messages))]

    def get_history(self, session_id: str) -> list[Any]:
        with self.lock:
            return deepcopy(self.sessions.get(session_id, []))

    def trim(self, session_id: str, max_messages: int) -> None:
        with self.lock:
            history = self.sessions.get(session_id, [])
            self.sessions[session_id] = history[max(0, len(history) - max_messages) :]

    def clear(self, session_id: str) -> None:
        with self.lock:
            self.sessions.pop(session_id, None)


def threads(where: Path) -> LockedLists:
    return LockedLists()


threads.processes = False  # type: ignore[attr-defined]
threads.share_threads = True  # type: ignore[attr-defined]


class AwaitedLists:
    """Awaited lists in an event loop, with an await in the middle of every change, as in a driver."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.sessions: dict[str, list[Any]] = {}

    async def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        async with self.lock:
            history = list(self.sessions.get(session_id, []))
            await asyncio.sleep(0)
            self.sessions[session_id] = [*history, *deepcopy(list(messages))]

    async def get_history(self, session_id: str) -> list[Any]:
        await asyncio.sleep(0)
        return deepcopy(self.sessions.get(session_id, []))

    async def clear(self, session_id: str) -> None:
        async with self.lock:
            await asyncio.sleep(0)
            self.sessions.pop(session_id, None)


async def tasks(where: Path) -> AwaitedLists:
    return AwaitedLists()


tasks.processes = False  # type: ignore[attr-defined]
