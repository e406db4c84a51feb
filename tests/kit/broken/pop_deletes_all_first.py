"""A pop deletes all and writes back the rest: killed in between, the conversation is gone."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, made_per_session

CAUGHT_BY = ("killed-in-pop",)


class Broken(Core):
    def pop(self, session: str) -> Any:
        messages = self.read(session)
        self.clear(session)
        if messages:
            self.replace(session, messages[:-1])
        return messages[-1] if messages else None


factory = made_per_session(Broken, Agents)
