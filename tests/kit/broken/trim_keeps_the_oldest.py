"""mem0 2.2.1: of a batch the oldest are kept."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("trim",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        self.replace(session, self.read(session)[:max_messages])


factory = made(Broken)
