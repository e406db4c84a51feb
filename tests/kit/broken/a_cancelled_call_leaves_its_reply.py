"""A cancelled call leaves its reply on the connection: the next user is shown the previous one's chat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.memory import AwaitedLists

CAUGHT_BY = ("cancelled-calls",)


class Broken(AwaitedLists):
    """Reads go over a connection, on which replies come in the order of the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.reading = asyncio.Lock()

    async def answer(self, session_id: str) -> None:
        self.replies.put_nowait(await super().get_history(session_id))

    async def get_history(self, session_id: str) -> list[Any]:
        async with self.reading:
            server = asyncio.ensure_future(self.answer(session_id))
            reply = await self.replies.get()
            await server
            return reply

    async def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        await super().add_messages(session_id, messages)


async def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
