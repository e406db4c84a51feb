"""Agent Framework FileCheckpointStorage 1.23.0: the latest checkpoint is the newest, and nobody compares."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Workflows, made

CAUGHT_BY = ("checkpoint-lost-update",)


class Broken(Workflows):
    def store(self, workflow: str, row: Any) -> None:
        self.core.append(workflow, [row])


factory = made(Core, Broken)
