"""Pending writes are kept in memory until the step is over: after a crash the tool that had paid runs again."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("pending-writes",)


class Broken(LangGraph):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        pass


factory = made(Core, Broken)
