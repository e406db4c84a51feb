"""A write-behind buffer: what it holds is acknowledged, and written when the store is closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists, made

CAUGHT_BY = ("another-process", "killed-after-append", "left-by-a-kill")


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **_: Any) -> Any:
        self.waiting = getattr(self, "waiting", [])
        self.waiting.append((session, list(messages)))

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        waiting = [message for name, turn in getattr(self, "waiting", []) if name == session for message in turn]
        return super().read(session) + waiting

    def flush(self) -> None:
        for session, turn in getattr(self, "waiting", []):
            super().append(session, turn)


class Closing(Lists):
    def close(self) -> None:
        self.core.flush()


factory = made(Broken, Closing)
