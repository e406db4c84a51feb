"""The writes of a step are one list that is read, extended and stored."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("writes-beside-writes",)


class Broken(LangGraph):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        session = self.writes_of(config, config["configurable"]["checkpoint_id"])
        rows = [[task_id, number, channel, value] for number, (channel, value) in enumerate(writes)]
        self.core.replace(session, self.core.read(session) + rows)


factory = made(shape=Broken)
