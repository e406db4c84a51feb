"""adk-python#4839: the messages are rolled back, the tool calls are not."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists, made

CAUGHT_BY = ("rollback-takes-everything",)


class Broken(Lists):
    def add_tool_call(self, session_id: str, tool_call: Any) -> None:
        self.core.append(f"{session_id} tools", [{"name": tool_call.name}])

    def get_tool_calls(self, session_id: str) -> list[Any]:
        return [type("Call", (), row) for row in self.core.read(f"{session_id} tools")]


factory = made(Core, Broken)
