"""Reading a session that is empty begins it, with a greeting."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("empty-session",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        found = super().read(session, limit)
        if not found:
            self.append(session, [{"role": "assistant", "content": "Hello!"}])
        return found


factory = made(Broken)
