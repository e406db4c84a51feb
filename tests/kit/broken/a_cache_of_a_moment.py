"""Reads are cached for a moment: the agent answers without what the user has just said."""

from __future__ import annotations

import time
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("reads-are-fresh",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        self.cache = getattr(self, "cache", {})
        until, found = self.cache.get(session, (0.0, []))
        if time.monotonic() >= until:
            found = super().read(session)
            self.cache[session] = (time.monotonic() + 0.05, found)
        return list(found)


factory = made(Broken)
