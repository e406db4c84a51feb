"""OpenAI Agents `RedisSession`: one `add_items` per turn, `get_items` to load."""

import redis.asyncio
from agents.extensions.memory import RedisSession

from benchmarks.contenders.on_sqlite.openai_agents import OpenAIItems

CONNECTIONS = 50  # as everturn's default


class OpenAIRedisSession(OpenAIItems):
    """One session object per session, kept; one client for all, as its documentation advises."""

    def __init__(self, url: str) -> None:
        """Make the client."""
        super().__init__()
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=60)
        self._client = redis.asyncio.Redis(connection_pool=pool)
        self._sessions: dict[str, RedisSession] = {}

    def session(self, session_id: str) -> RedisSession:
        if session_id not in self._sessions:
            self._sessions[session_id] = RedisSession(session_id, redis_client=self._client)
        return self._sessions[session_id]

    def close(self) -> None:
        """Close the client and the loop."""
        self.runner.run(self._client.aclose())
        self.runner.close()
