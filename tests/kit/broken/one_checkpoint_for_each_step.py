"""A row for each step of a thread: of two checkpoints of one step, the later takes the place of the other."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoints-are-all-kept",)


class Broken(LangGraph):
    def store(self, thread: str, row: Any, parent: str | None) -> None:
        with self.core.change() as db:
            self.core.begin(db, thread)
            others = [old for old in self.core.load(db, thread) if old["metadata"]["step"] != row["metadata"]["step"]]
            self.core.set_all(db, thread, [*others, row])


factory = made(Core, Broken)
