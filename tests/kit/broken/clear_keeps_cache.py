"""A clear removes the rows, and the list that was cached at the last read stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        receipt = super().append(session, messages, **options)
        self.cache = getattr(self, "cache", {})
        self.cache[session] = [*self.cache.get(session, []), *messages]
        return receipt

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return list(getattr(self, "cache", {}).get(session) or super().read(session, limit))


factory = made(Broken)
