"""The bare driver: one `RPUSH` a turn with redis-py and `json`, as a careful person writes it.

One round trip, so a turn is whole. No version, no call id: a time-out leaves a doubt that nothing can clear up.
"""

import asyncio
import json
import os
import time
from collections.abc import Sequence

import redis
import redis.asyncio

from everturn.bench.contenders.timing import flooded, timed
from everturn.bench.workload import Message, encode
from everturn.bench.workload import turns as make_turns

CONNECTIONS = 50  # as everturn's default


class Bare:
    """A list of JSON for each session."""

    def __init__(self, url: str) -> None:
        """Connect, blocking and for an event loop."""
        self._client = redis.Redis.from_url(url)
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=60)
        self._async_client = redis.asyncio.Redis(connection_pool=pool)
        self._runner = asyncio.Runner()
        self._written: set[str] = set()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        key, rpush = _key(session_id), self._client.rpush
        self._written.add(key)
        return timed(lambda turn: rpush(key, *[encode(message) for message in turn]), make_turns(turns, first=first))

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""
        return self._runner.run(flooded(self._push, ids, make_turns(turns)))

    async def _push(self, session_id: str, turn: list[Message]) -> None:
        await self._async_client.rpush(_key(session_id), *[encode(message) for message in turn])

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        loaded = [json.loads(body) for body in self._client.lrange(_key(session_id), 0, -1)]
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close. The server may be someone's own: nothing is left there."""
        for key in self._written:
            self._client.unlink(key)
        self._client.close()
        self._runner.run(self._async_client.aclose())
        self._runner.close()


def _key(session_id: str) -> str:
    return f"bare:{os.getpid()}:{session_id}"  # its twin has the same server
