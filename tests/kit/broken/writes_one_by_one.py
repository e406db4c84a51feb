"""Each write of a task is a transaction of its own."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("killed-in-put-writes",)


class Broken(LangGraph):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        session = self.writes_of(config, config["configurable"]["checkpoint_id"])
        for number, (channel, value) in enumerate(writes):
            self.core.append(session, [[task_id, number, channel, value]])


factory = made(shape=Broken)
