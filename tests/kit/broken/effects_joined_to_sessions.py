"""Session and key of an effect are one text, with a colon between: an effect that nobody began is done."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-names",)


class Broken(ResumingCore):
    def effect(self, db: sqlite3.Connection, session: str, key: str) -> dict[str, Any] | None:
        return super().effect(db, "", f"{session}:{key}")

    def write_effect(self, db: sqlite3.Connection, session: str, key: str, status: str, result: Any = None) -> None:
        super().write_effect(db, "", f"{session}:{key}", status, result)


factory = made(Broken)
