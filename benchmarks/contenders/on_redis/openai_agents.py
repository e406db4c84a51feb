"""OpenAI Agents `RedisSession`: one `add_items` per turn, `get_items` to load."""

import asyncio
import time
from collections.abc import Sequence

import redis.asyncio
from agents import TResponseInputItem
from agents.extensions.memory import RedisSession

from everturn.bench.contenders.timing import flooded, timed_async
from everturn.bench.workload import turns as make_turns

CONNECTIONS = 50  # as everturn's default


class OpenAIAgents:
    """One session object per session, kept; one client for all, as its documentation advises."""

    def __init__(self, url: str) -> None:
        """Make the client."""
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=60)
        self._client = redis.asyncio.Redis(connection_pool=pool)
        self._runner = asyncio.Runner()
        self._sessions: dict[str, RedisSession] = {}

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        return self._runner.run(timed_async(self._session(session_id).add_items, _items(turns, first)))

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""

        async def add(session_id: str, items: list[TResponseInputItem]) -> None:
            await self._session(session_id).add_items(items)

        return self._runner.run(flooded(add, ids, _items(turns, 0)))

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        return self._runner.run(self._load(self._session(session_id)))

    async def _load(self, session: RedisSession) -> tuple[float, int]:
        start = time.perf_counter()
        loaded = await session.get_items()
        return time.perf_counter() - start, len(loaded)

    def _session(self, session_id: str) -> RedisSession:
        if session_id not in self._sessions:
            self._sessions[session_id] = RedisSession(session_id, redis_client=self._client)
        return self._sessions[session_id]

    def close(self) -> None:
        """See Contender.close."""
        self._runner.run(self._client.aclose())
        self._runner.close()


def _items(turns: int, first: int) -> list[list[TResponseInputItem]]:
    return [
        [{"role": "user", "content": user["content"]}, {"role": "assistant", "content": reply["content"]}]
        for user, reply in make_turns(turns, first=first)
    ]
