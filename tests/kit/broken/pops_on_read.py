"""A read takes the oldest message out of the queue it was put into."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("reading-changes-nothing",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        found = super().read(session, limit)
        self.replace(session, found[1:])
        return found


factory = made(Broken)
