"""Bases of contenders: a store says how a turn is made, added and read. The clock is here, once for all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from everturn.bench.contenders.timing import Cost, costs, costs_async, timed, timed_async, timed_tasks
from everturn.bench.workload import PlainMessage, messages
from everturn.bench.workload import turns as make_turns

FILLED_AT_ONCE = 500  # messages of one append that only makes a history long


class _Session:
    """Messages and sessions in the form that a store takes. Both are made before the clock starts."""

    def session(self, session_id: str) -> Any:
        """The argument that names a session: its id, or an object that is kept."""
        return session_id

    def made(self, turn: Sequence[PlainMessage]) -> Any:
        """The turn in the store's own kind of message."""
        return turn

    def prepared(self, turns: int, first: int = 0) -> list[Any]:
        """Turns of two messages, numbered from `first`."""
        return [self.made(turn) for turn in make_turns(turns, first=first)]

    def long_turns(self, first: int, count: int) -> list[Any]:
        """Turns of many messages, numbered from `first`, to fill a history with."""
        last = first + count
        return [
            self.made(messages(min(FILLED_AT_ONCE, last - start), first=start))
            for start in range(first, last, FILLED_AT_ONCE)
        ]


class BlockingContender(_Session):
    """A contender whose methods block."""

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        session = self.session(session_id)
        return timed(lambda turn: self.add(session, turn), self.prepared(turns, first))

    def load(self, session_id: str) -> tuple[float, int]:
        return self._timed_read(self.read, self.session(session_id))

    def fill(self, session_id: str, *, first: int, count: int) -> None:
        session = self.session(session_id)
        for turn in self.long_turns(first, count):
            self.add(session, turn)

    def read_latest(self, session_id: str, *, count: int, times: int) -> list[Cost]:
        session = self.session(session_id)
        checked(self.latest(session, count), count)
        return costs(lambda _: self.latest(session, count), range(times))

    def agent_turns(self, session_id: str, *, turns: int, first: int, count: int) -> list[Cost]:
        session = self.session(session_id)

        def turn_of_an_agent(turn: Any) -> None:
            self.latest(session, count)
            self.add(session, turn)

        return costs(turn_of_an_agent, self.prepared(turns, first))

    @staticmethod
    def _timed_read(read: Callable[[Any], Sequence[object]], session: Any) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = read(session)
        return time.perf_counter() - start, len(loaded)

    def add(self, session: Any, turn: Any) -> object:
        """Append the turn."""
        raise NotImplementedError

    def read(self, session: Any) -> Sequence[object]:
        """Every message, oldest first."""
        raise NotImplementedError

    def latest(self, session: Any, count: int) -> Sequence[object]:
        """The latest `count` messages, oldest first. A store that cannot read them alone reads everything."""
        return self.read(session)[-count:]


class AsyncContender(_Session):
    """A contender whose methods are awaited, in one event loop."""

    def __init__(self) -> None:
        """Make the loop."""
        self.runner = asyncio.Runner()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        session = self.session(session_id)
        return self.runner.run(timed_async(lambda turn: self.add(session, turn), self.prepared(turns, first)))

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        def append(session_id: str, turn: Any) -> Awaitable[object]:
            return self.add(self.session(session_id), turn)

        return self.runner.run(timed_tasks(append, ids, self.prepared(turns)))

    def fill(self, session_id: str, *, first: int, count: int) -> None:
        session = self.session(session_id)

        async def all_of_it() -> None:
            for turn in self.long_turns(first, count):
                await self.add(session, turn)

        self.runner.run(all_of_it())

    def read_latest(self, session_id: str, *, count: int, times: int) -> list[Cost]:
        session = self.session(session_id)

        async def reads() -> list[Cost]:
            checked(await self.latest(session, count), count)
            return await costs_async(lambda _: self.latest(session, count), range(times))

        return self.runner.run(reads())

    def agent_turns(self, session_id: str, *, turns: int, first: int, count: int) -> list[Cost]:
        session = self.session(session_id)

        async def turn_of_an_agent(turn: Any) -> None:
            await self.latest(session, count)
            await self.add(session, turn)

        return self.runner.run(costs_async(turn_of_an_agent, self.prepared(turns, first)))

    def load(self, session_id: str) -> tuple[float, int]:
        return self.runner.run(self._timed_read(self.session(session_id)))

    async def _timed_read(self, session: Any) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await self.read(session)
        return time.perf_counter() - start, len(loaded)

    def add(self, session: Any, turn: Any) -> Awaitable[object]:
        """Append the turn."""
        raise NotImplementedError

    def read(self, session: Any) -> Awaitable[Sequence[object]]:
        """Every message, oldest first."""
        raise NotImplementedError

    async def latest(self, session: Any, count: int) -> Sequence[object]:
        """The latest `count` messages, oldest first. A store that cannot read them alone reads everything."""
        return (await self.read(session))[-count:]


def checked(read: Sequence[object], count: int) -> None:
    """Raise RuntimeError if not as many messages came as were asked for: a fast read of nothing is no feat."""
    if len(read) != count:
        raise RuntimeError(f"{len(read)} messages came instead of {count}")
