"""LangChain `PostgresChatMessageHistory` (langchain-postgres): one `add_messages` per turn, `.messages` to load."""

import asyncio
import uuid
from collections.abc import Sequence

import psycopg
from langchain_core.messages import BaseMessage
from langchain_postgres import PostgresChatMessageHistory
from psycopg_pool import AsyncConnectionPool

from benchmarks.contenders.langchain_messages import LangChainMessages
from everturn.bench.contenders.timing import timed_tasks

CONNECTIONS = 10  # as everturn's default
TABLE = "langchain_history"


class LangChainPostgresHistory(LangChainMessages):
    """A history object is made around a connection, which can be shared; for tasks, around one from a pool."""

    def __init__(self, url: str) -> None:
        """Connect, and make its table."""
        self._url = url
        self._connection = psycopg.connect(url)
        PostgresChatMessageHistory.create_tables(self._connection, TABLE)
        self._pool: AsyncConnectionPool | None = None
        self._runner = asyncio.Runner()

    def session(self, session_id: str) -> PostgresChatMessageHistory:
        return PostgresChatMessageHistory(TABLE, _uuid(session_id), sync_connection=self._connection)

    def add(self, session: PostgresChatMessageHistory, turn: list[BaseMessage]) -> None:
        session.add_messages(turn)

    def read(self, session: PostgresChatMessageHistory) -> list[BaseMessage]:
        return session.messages

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        return self._runner.run(
            self._append_from_tasks([_uuid(session_id) for session_id in ids], self.prepared(turns))
        )

    async def _append_from_tasks(self, ids: Sequence[str], turns: list[list[BaseMessage]]) -> float:
        if self._pool is None:
            self._pool = AsyncConnectionPool(self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False)
            await self._pool.open(wait=True)
        return await timed_tasks(self._add, ids, turns)

    async def _add(self, session_id: str, messages: list[BaseMessage]) -> None:
        assert self._pool
        async with self._pool.connection() as connection:
            await PostgresChatMessageHistory(TABLE, session_id, async_connection=connection).aadd_messages(messages)

    def close(self) -> None:
        """Close the connections and the loop."""
        self._connection.close()
        if self._pool is not None:
            self._runner.run(self._pool.close())
        self._runner.close()


def _uuid(session_id: str) -> str:
    """A UUID for the session: the history takes no other id."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, session_id))
