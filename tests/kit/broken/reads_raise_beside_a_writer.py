"""A mark says that a writer is at work, and a reader that sees it gives up: no answer is given while others talk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("append-read",)


class Broken(Core):
    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        super().__init__(where, ttl, timeout)
        self.where = where

    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        mark = self.where / f"{session.encode().hex()[:64]}.writing"
        mark.touch()
        try:
            return super().append(session, messages, **options)
        finally:
            mark.unlink(missing_ok=True)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        if (self.where / f"{session.encode().hex()[:64]}.writing").exists():
            raise OSError("somebody writes")
        return super().read(session, limit)


factory = made(Broken)
