"""The messages of a session expire, and its keys do not."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keys-expire",)


class Broken(Core):
    def begin(self, db: sqlite3.Connection, session: str) -> None:
        kept = db.execute("SELECT * FROM keys WHERE session = ?", (session,)).fetchall()
        super().begin(db, session)
        db.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", kept)


factory = made(Broken)
