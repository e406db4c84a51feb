"""LangChain `PostgresChatMessageHistory` (langchain-postgres): one `add_messages` per turn, `.messages` to load."""

import asyncio
import time
import uuid
from collections.abc import Sequence

import psycopg
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_postgres import PostgresChatMessageHistory
from psycopg_pool import AsyncConnectionPool

from everturn.bench.contenders.timing import flooded, timed
from everturn.bench.workload import turns as make_turns

CONNECTIONS = 10  # as everturn's default
TABLE = "langchain_history"


class LangChain:
    """A history object is made around a connection, which can be shared; for tasks, around one from a pool."""

    def __init__(self, url: str) -> None:
        """Connect, and make its table."""
        self._url = url
        self._connection = psycopg.connect(url)
        PostgresChatMessageHistory.create_tables(self._connection, TABLE)
        self._pool: AsyncConnectionPool | None = None
        self._runner = asyncio.Runner()

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        return timed(self._history(session_id).add_messages, _messages(turns, first))

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""
        return self._runner.run(self._flood([_uuid(session_id) for session_id in ids], _messages(turns, 0)))

    async def _flood(self, ids: Sequence[str], turns: list[list[BaseMessage]]) -> float:
        if self._pool is None:
            self._pool = AsyncConnectionPool(self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False)
            await self._pool.open(wait=True)
        return await flooded(self._add, ids, turns)

    async def _add(self, session_id: str, messages: list[BaseMessage]) -> None:
        assert self._pool
        async with self._pool.connection() as connection:
            await PostgresChatMessageHistory(TABLE, session_id, async_connection=connection).aadd_messages(messages)

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        history = self._history(session_id)
        start = time.perf_counter()
        loaded = history.messages
        return time.perf_counter() - start, len(loaded)

    def _history(self, session_id: str) -> PostgresChatMessageHistory:
        return PostgresChatMessageHistory(TABLE, _uuid(session_id), sync_connection=self._connection)

    def close(self) -> None:
        """See Contender.close."""
        self._connection.close()
        if self._pool is not None:
            self._runner.run(self._pool.close())
        self._runner.close()


def _uuid(session_id: str) -> str:
    """It takes no other ids."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, session_id))


def _messages(turns: int, first: int) -> list[list[BaseMessage]]:
    return [
        [HumanMessage(user["content"]), AIMessage(reply["content"])] for user, reply in make_turns(turns, first=first)
    ]
