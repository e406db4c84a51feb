"""PostgreSQL in an event loop: the operations of backend.py, with changes that wait together in one statement."""

from __future__ import annotations

import asyncio
from typing import Any

from everturn.backend import ChangeOutcome, ChangeRequest
from everturn.backends.postgres.backend import PostgresBackend
from everturn.backends.postgres.batching import ChangeBatcher
from everturn.backends.postgres.executor import AsyncExecutor


class AsyncPostgresBackend(PostgresBackend):
    """The operations in an event loop, where changes that wait together share a statement."""

    def __init__(self, executor: AsyncExecutor, **names: Any) -> None:
        super().__init__(executor, **names)
        self._batcher = ChangeBatcher(executor, self._window, self._change_call, self._outcomes)

    async def _changed(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        if not self._knows_time:
            await self._make_ready(deadline)
        return await self._batcher.send(request, deadline)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if not self._closed:
            await self._batcher.close()
        await super().close()
