"""LangGraph `PostgresSaver`, without a graph around it: see langgraph.py one folder up, which says what a turn is."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from everturn.bench.contenders.checkpoints import as_messages, config_of, following
from everturn.bench.contenders.timing import flooded, timed

CONNECTIONS = 10  # as everturn's default


class LangGraph:
    """One saver for all threads; for tasks, its async one over a pool, as its documentation has it."""

    def __init__(self, url: str) -> None:
        """Connect, and make its tables."""
        self._url = url
        self._stack = ExitStack()
        self._saver = self._stack.enter_context(PostgresSaver.from_conn_string(url))
        self._saver.setup()
        self._runner = asyncio.Runner()
        self._async_saver: AsyncPostgresSaver | None = None

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """See Contender.append."""
        config = config_of(session_id)
        return timed(lambda turn: self._put(config, turn), as_messages(turns, first))

    def _put(self, config: RunnableConfig, turn: list[BaseMessage]) -> None:
        self._saver.put(*following(self._saver, config, self._saver.get_tuple(config), turn))

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

    def load(self, session_id: str) -> tuple[float, int]:
        """See Contender.load."""
        start = time.perf_counter()
        latest = self._saver.get_tuple(config_of(session_id))
        loaded = latest.checkpoint["channel_values"]["messages"] if latest else []
        return time.perf_counter() - start, len(loaded)

    def close(self) -> None:
        """See Contender.close."""
        if self._async_saver is not None:
            self._runner.run(self._pool.close())
        self._runner.close()
        self._stack.close()
