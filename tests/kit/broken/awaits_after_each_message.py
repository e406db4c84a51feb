"""A task is cancelled between two awaits of one append: the question is stored, and the answer is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.memory import AwaitedLists

CAUGHT_BY = ("cancelled-in-append",)


class Broken(AwaitedLists):
    async def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        async with self.lock:
            for message in messages:
                await asyncio.sleep(0)
                self.sessions[session_id] = [*self.sessions.get(session_id, []), message]


async def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
