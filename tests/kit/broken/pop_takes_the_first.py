"""pop_item takes the oldest message: the runner's rewind removes the system prompt."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, made_per_session

CAUGHT_BY = ("pop",)


class Broken(Core):
    def pop(self, session: str) -> Any:
        messages = self.read(session)
        self.replace(session, messages[1:])
        return messages[0] if messages else None


factory = made_per_session(Broken, Agents)
