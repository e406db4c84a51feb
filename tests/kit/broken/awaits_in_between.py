"""An await between the read and the write of a list: two tasks of one worker lose a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.memory import AwaitedLists

CAUGHT_BY = ("tasks-lose-nothing", "append-append")


class Broken(AwaitedLists):
    async def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        history = await self.get_history(session_id)
        await asyncio.sleep(0)
        self.sessions[session_id] = [*history, *messages]


async def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
