"""everturn on a server, through its public API, as a user writes it: the same for every backend."""

import asyncio
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import everturn
from everturn.bench.contenders.ours import as_messages
from everturn.bench.contenders.timing import flooded, timed, timed_async
from everturn.bench.workload import turns as make_turns

warnings.simplefilter("ignore", RuntimeWarning)  # of the server's settings, which are the benchmark's choice


def _options() -> dict[str, Any]:
    # The other face has the same server; and a driver that is imported for the first time takes its time.
    return {"namespace": str(os.getpid()), "timeout": 60}


class Store:
    """The sync face."""

    def __init__(self, url: str) -> None:
        """Open the store."""
        self.store = everturn.open(url, **_options())
        self._written: set[str] = set()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        self._written.add(session_id)
        prepared = [as_messages(turn) for turn in make_turns(turns, first=first)]
        return timed(lambda turn: self.store.add_messages(session_id, turn), prepared)

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        loaded = self.store.get_history(session_id)
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close. The server may be someone's own: nothing is left there."""
        for session_id in self._written:
            self.store.erase(session_id)
        self.store.close()


class AsyncStore:
    """The async face."""

    def __init__(self, url: str) -> None:
        """Open the store on an event loop of its own."""
        self._runner = asyncio.Runner()
        self._store = self._runner.run(everturn.open_async(url, **_options()))

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append. One task, so nothing travels together."""
        prepared = [as_messages(turn) for turn in make_turns(turns, first=first)]
        return self._runner.run(timed_async(lambda turn: self._store.add_messages(session_id, turn), prepared))

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""
        prepared = [as_messages(turn) for turn in make_turns(turns)]
        return self._runner.run(flooded(self._store.add_messages, ids, prepared))

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
