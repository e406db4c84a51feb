"""LangGraph `PostgresSaver`, without a graph around it. `benchmarks.contenders.checkpoints` defines a turn."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.contenders.checkpoints import CheckpointerContender, config_of, following
from everturn.bench.contenders.timing import timed_tasks

CONNECTIONS = 10  # as everturn's default


class LangGraphPostgresSaver(CheckpointerContender):
    """One saver for all threads; for tasks, its async one over a pool, as its documentation has it."""

    def __init__(self, url: str) -> None:
        """Connect, and make its tables."""
        self._url = url
        self._stack = ExitStack()
        saver = self._stack.enter_context(PostgresSaver.from_conn_string(url))
        saver.setup()
        self.saver = saver
        self._runner = asyncio.Runner()
        self._async_saver: AsyncPostgresSaver | None = None

    def append_from_tasks(self, ids: Sequence[str], *, turns: int) -> float:
        return self._runner.run(self._append_from_tasks(ids, self.prepared(turns)))

    async def _append_from_tasks(self, ids: Sequence[str], turns: list[list[BaseMessage]]) -> float:
        if self._async_saver is None:
            kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            self._pool = AsyncConnectionPool(
                self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, kwargs=kwargs
            )
            await self._pool.open(wait=True)
            self._async_saver = AsyncPostgresSaver(self._pool)  # its rows are dicts
        saver = self._async_saver

        async def put(session_id: str, turn: list[BaseMessage]) -> None:
            config = config_of(session_id)
            await saver.aput(*following(saver, config, await saver.aget_tuple(config), turn))

        return await timed_tasks(put, ids, turns)

    def close(self) -> None:
        """Close the connections and the loop."""
        if self._async_saver is not None:
            self._runner.run(self._pool.close())
        self._runner.close()
        self._stack.close()
