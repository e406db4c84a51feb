"""A checkpointer lists a thread's checkpoints from the first on, and looks at `before` not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-list",)


class Broken(LangGraph):
    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:  # noqa: A002 - LangGraph's name
        for row in self.core.read(self.session(config), None)[:limit]:
            yield self.tuple_of(config, row)


factory = made(Core, Broken)
