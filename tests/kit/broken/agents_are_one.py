"""A repository numbers messages for each agent, and reads them by their session alone."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Strands, made_without_ttl

CAUGHT_BY = ("agents-of-a-session",)


class Broken(Strands):
    def create_message(self, session_id: str, agent_id: str, session_message: Any) -> None:
        super().create_message(session_id, "agent", session_message)

    def list_messages(self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0) -> list[Any]:
        return super().list_messages(session_id, "agent", limit, offset)


factory = made_without_ttl(Core, shape=Broken)
