"""Only the latest checkpoint of a thread is kept: none before it can be resumed from."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-by-id",)


class Broken(LangGraph):
    def store(self, thread: str, row: Any, parent: str | None) -> None:
        self.core.replace(thread, [row])


factory = made(Core, Broken)
