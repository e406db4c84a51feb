"""A clear empties the cache and not the disk: after the next deployment the conversation is back."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("changes-persist",)


class Broken(Core):
    def clear(self, session: str) -> None:
        self.hidden = getattr(self, "hidden", {})
        self.hidden[session] = len(super().read(session))

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(session, limit)[getattr(self, "hidden", {}).get(session, 0) :]


factory = made(Broken)
