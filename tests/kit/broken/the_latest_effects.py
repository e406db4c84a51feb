"""The latest fifty effects of all sessions are kept: after a busy hour a mail is sent again."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effects-are-kept",)


class Broken(ResumingCore):
    def write_effect(self, db: sqlite3.Connection, session: str, key: str, status: str, result: Any = None) -> None:
        super().write_effect(db, session, key, status, result)
        db.execute("DELETE FROM effects WHERE rowid <= (SELECT max(rowid) FROM effects) - 50")


factory = made(Broken)
