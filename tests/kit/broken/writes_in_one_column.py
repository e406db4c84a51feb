"""Pending writes of a step are read, extended and written back: of tasks at once, some are lost."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("pending-writes-at-once",)


class Broken(LangGraph):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        name = self.writes_of(config, config["configurable"]["checkpoint_id"])
        before = self.core.read(name)
        rows = [[task_id, number, channel, value] for number, (channel, value) in enumerate(writes)]
        self.core.replace(name, before + rows)


factory = made(Core, Broken)
