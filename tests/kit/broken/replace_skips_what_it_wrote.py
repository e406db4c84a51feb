"""A replacement by what this worker wrote last is skipped, whatever others have written since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("replace-back",)


class Broken(Core):
    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        super().__init__(where, ttl, timeout)
        self.wrote: dict[str, list[Any]] = {}

    def replace(self, session: str, messages: Sequence[Any]) -> None:
        if self.wrote.get(session) != list(messages):
            super().replace(session, messages)
            self.wrote[session] = list(messages)


factory = made(Broken)
