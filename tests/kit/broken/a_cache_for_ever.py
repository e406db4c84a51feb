"""A list cached at the first read: a worker never sees what others store later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("sees-later-writes",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        self.cache = getattr(self, "cache", {})
        if session not in self.cache:
            self.cache[session] = super().read(session)
        return list(self.cache[session])

    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        self.cache = getattr(self, "cache", {})
        if session in self.cache:
            self.cache[session].extend(messages)
        return super().append(session, messages, **options)


factory = made(Broken)
