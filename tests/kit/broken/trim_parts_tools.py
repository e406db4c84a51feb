"""letta#3250: a trim counts messages, and leaves a tool result without its call."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists, made

CAUGHT_BY = ("trim-keeps-prompts",)


class Broken(Lists):
    def trim(self, session_id: str, max_messages: int, keep_system: bool = True) -> None:
        history = self.core.read(session_id)
        system = [message for message in history if message["role"] == "system"]
        self.core.replace(session_id, system + history[len(history) - max_messages + len(system) :])


factory = made(Core, Broken)
