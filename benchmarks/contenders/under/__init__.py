"""Stores under a framework: everturn's adapter, and beside it what the framework brings for the same backend.

Both are driven through the framework's own interface and its own messages, so that what is compared is the store. A
place is a directory (SQLite) or the URL of a server.
"""

import asyncio
import os
import time
import warnings
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import everturn
from everturn import AsyncMemoryStore, MemoryStore
from everturn.bench.contenders import Place
from everturn.bench.contenders.ours import url
from everturn.bench.contenders.timing import timed, timed_async
from everturn.bench.workload import Message
from everturn.bench.workload import turns as make_turns

warnings.simplefilter("ignore", RuntimeWarning)  # of a server's settings, which are the benchmark's choice


class Blocking:
    """A contender whose methods block. A store says how a turn is made, added, and read again."""

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        session = self.session(session_id)
        prepared = [self.made(turn) for turn in make_turns(turns, first=first)]
        return timed(lambda turn: self.add(session, turn), prepared)

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        session = self.session(session_id)
        start = time.perf_counter()
        loaded = self.read(session)
        return time.perf_counter() - start, len(loaded)

    def session(self, session_id: str) -> Any:
        """What stands for a session: its id, or an object that is kept."""
        return session_id

    def made(self, turn: Sequence[Message]) -> Any:
        """The turn in the framework's own messages."""
        raise NotImplementedError

    def add(self, session: Any, turn: Any) -> object:
        """Append the turn."""
        raise NotImplementedError

    def read(self, session: Any) -> Sequence[object]:
        """All messages."""
        raise NotImplementedError


class Awaiting:
    """The same where they are awaited, in one event loop."""

    def __init__(self) -> None:
        """Make the loop."""
        self.runner = asyncio.Runner()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        session = self.session(session_id)
        prepared = [self.made(turn) for turn in make_turns(turns, first=first)]
        return self.runner.run(timed_async(lambda turn: self.add(session, turn), prepared))

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        return self.runner.run(self._load(self.session(session_id)))

    async def _load(self, session: Any) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await self.read(session)
        return time.perf_counter() - start, len(loaded)

    def session(self, session_id: str) -> Any:
        """What stands for a session: its id, or an object that is kept."""
        return session_id

    def made(self, turn: Sequence[Message]) -> Any:
        """The turn in the framework's own messages."""
        raise NotImplementedError

    def add(self, session: Any, turn: Any) -> Awaitable[object]:
        """Append the turn."""
        raise NotImplementedError

    def read(self, session: Any) -> Awaitable[Sequence[object]]:
        """All messages."""
        raise NotImplementedError


def opened(place: Place) -> MemoryStore:
    """A blocking store in this place."""
    return everturn.open(_url(place), **_options(place))


async def opened_async(place: Place) -> AsyncMemoryStore:
    """An asynchronous one."""
    return await everturn.open_async(_url(place), **_options(place))


def _url(place: Place) -> str:
    return url(place) if isinstance(place, Path) else place


def _options(place: Place) -> dict[str, Any]:
    return {} if isinstance(place, Path) else {"namespace": f"under-{os.getpid()}", "timeout": 60}


def asyncpg(url: str) -> str:
    """A PostgreSQL URL as SQLAlchemy wants it, with the driver it awaits."""
    return f"postgresql+asyncpg://{url.partition('://')[2]}"
