"""LangGraph SqliteSaver 3.1.2: the head is the newest checkpoint, and nobody compares."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-lost-update",)


class Broken(LangGraph):
    def store(self, thread: str, row: Any, parent: str | None) -> None:
        self.core.append(thread, [row])


factory = made(Core, Broken)
