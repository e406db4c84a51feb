"""A read with a limit gives how the conversation began, and not where it is."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("latest",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(session)[:limit]


factory = made(Broken)
