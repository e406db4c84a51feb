"""asave_context begins a loop of its own, which fails in the very place where it is awaited: inside a loop."""

from __future__ import annotations

import asyncio

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Pairs, made

CAUGHT_BY = ("twins",)


class Broken(Pairs):
    async def asave_context(self, session_id: str, human: str, ai: str) -> None:
        asyncio.run(asyncio.to_thread(self.save_context, session_id, human, ai))


factory = made(Core, Broken)
