"""LangGraph `PostgresSaver`, without a graph around it: see checkpoints.py one folder up, which says what a turn is."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from everturn.bench.contenders.checkpoints import Checkpointing, as_messages, config_of, following
from everturn.bench.contenders.timing import flooded

CONNECTIONS = 10  # as everturn's default


class LangGraph(Checkpointing):
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

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """See Flooder.flood."""
        return self._runner.run(self._flood(ids, as_messages(turns, 0)))

    async def _flood(self, ids: Sequence[str], turns: list[list[BaseMessage]]) -> float:
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

        return await flooded(put, ids, turns)

    def close(self) -> None:
        """See Contender.close."""
        if self._async_saver is not None:
            self._runner.run(self._pool.close())
        self._runner.close()
        self._stack.close()
