"""One connection for all sessions: a pop that is cancelled leaves its reply there, for the next caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents

CAUGHT_BY = ("cancelled-calls",)
_replies: dict[Path, deque[Any]] = {}


class Broken(Agents):
    async def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        replies = _replies.setdefault(self.core.path, deque())
        replies.append(call(*arguments))
        return replies.popleft()

    async def add_items(self, items: Sequence[Any]) -> None:
        await self.ask(self.core.append, self.session_id, list(items))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await self.ask(self.core.read, self.session_id, limit)  # type: ignore[no-any-return]

    async def pop_item(self) -> Any:
        replies = _replies.setdefault(self.core.path, deque())
        replies.append(self.core.pop(self.session_id))
        await asyncio.sleep(0)
        return replies.popleft()


def factory(where: Path, session_id: str) -> Broken:
    return Broken(Core(where), session_id)


factory.processes = False  # type: ignore[attr-defined]
