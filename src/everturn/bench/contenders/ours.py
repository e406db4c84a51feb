"""everturn through its public API, sync and async, as a user writes it."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import everturn
from everturn import ChatMessage
from everturn.bench.workload import Message
from everturn.bench.workload import turns as make_turns


def url(path: Path) -> str:
    """The URL of the database in this directory."""
    return f"sqlite:///{path.resolve() / 'everturn.db'}"


def as_messages(written: Iterable[Message]) -> list[ChatMessage]:
    """The workload's messages as everturn's."""
    return [ChatMessage(message["role"], message["content"]) for message in written]


class Everturn:
    """The sync face with its default durability, synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        """Open the store in this empty directory."""
        self.store = everturn.open(url(path))

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        seconds = []
        for turn in [as_messages(turn) for turn in make_turns(turns, first=first)]:
            start = time.perf_counter()
            self.store.add_messages(session_id, turn)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        loaded = self.store.get_history(session_id)
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        self.store.close()


class AsyncEverturn:
    """The async face: one task, so every append waits for its own commit."""

    def __init__(self, path: Path) -> None:
        """Open the store in this empty directory, on an event loop of its own."""
        self._runner = asyncio.Runner()
        self._store = self._runner.run(everturn.open_async(url(path)))

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        return self._runner.run(
            self._append(session_id, [as_messages(turn) for turn in make_turns(turns, first=first)])
        )

    async def _append(self, session_id: str, prepared: list[list[ChatMessage]]) -> list[float]:
        seconds = []
        for turn in prepared:
            start = time.perf_counter()
            await self._store.add_messages(session_id, turn)
            seconds.append(time.perf_counter() - start)
        return seconds

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        return self._runner.run(self._load(session_id))

    async def _load(self, session_id: str) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await self._store.get_history(session_id)
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        self._runner.run(self._store.close())
        self._runner.close()
