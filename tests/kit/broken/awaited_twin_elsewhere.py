"""asave_context writes to a table of its own, that load_memory does not read."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Pairs, made

CAUGHT_BY = ("twins",)


class Broken(Pairs):
    async def asave_context(self, session_id: str, human: str, ai: str) -> None:
        self.core.append(f"async:{session_id}", [{"human": human, "ai": ai}])


factory = made(Core, Broken)
