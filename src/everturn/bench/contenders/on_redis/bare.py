"""The bare driver on Redis: one `RPUSH` a turn with redis-py and `json`, as a careful person writes it.

One round trip, so a turn is whole. No version, no call id: a time-out leaves a doubt that nothing can clear up.
"""

import asyncio
import json
import os
from collections.abc import Sequence

import redis
import redis.asyncio

from everturn.bench.contenders.contender import BlockingContender
from everturn.bench.contenders.timing import timed_tasks
from everturn.bench.workload import PlainMessage, encode

CONNECTIONS = 50  # as everturn's default


class BareRedis(BlockingContender):
    """A list of JSON for each session."""

    def __init__(self, url: str) -> None:
        """Connect, blocking and for an event loop."""
        self._client = redis.Redis.from_url(url)
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=60)
        self._async_client = redis.asyncio.Redis(connection_pool=pool)
        self._runner = asyncio.Runner()
        self._written: set[str] = set()

    def session(self, session_id: str) -> str:
        """The key of its list. Another process with the same server has other keys."""
        key = f"bare:{os.getpid()}:{session_id}"
        self._written.add(key)
        return key

    def add(self, session: str, turn: list[PlainMessage]) -> None:
        self._client.rpush(session, *[encode(message) for message in turn])

    def read(self, session: str) -> list[object]:
        return [json.loads(body) for body in self._client.lrange(session, 0, -1)]

    def latest(self, session: str, count: int) -> list[object]:
        return [json.loads(body) for body in self._client.lrange(session, -count, -1)]

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        return self._runner.run(timed_tasks(self._push, ids, self.prepared(turns)))

    async def _push(self, session_id: str, turn: list[PlainMessage]) -> None:
        await self._async_client.rpush(self.session(session_id), *[encode(message) for message in turn])

    def close(self) -> None:
        """Close both clients. The server may be someone's own: nothing is left there."""
        for key in self._written:
            self._client.unlink(key)
        self._client.close()
        self._runner.run(self._async_client.aclose())
        self._runner.close()
