"""A pop reads the list and writes it back without its last item: what came in between is gone."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, made_per_session

CAUGHT_BY = ("append-pop", "pop-pop")


class Broken(Core):
    def pop(self, session: str) -> Any:
        messages = self.read(session)
        if not messages:
            return None
        self.replace(session, messages[:-1])
        return messages[-1]


factory = made_per_session(Broken, Agents)
