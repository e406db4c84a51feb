"""The messages of a session expire, and its snapshots do not."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshots-expire",)


class Broken(Core):
    def begin(self, db: sqlite3.Connection, session: str) -> None:
        kept = db.execute("SELECT * FROM snapshots WHERE session = ?", (session,)).fetchall()
        super().begin(db, session)
        db.executemany("INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?)", kept)


factory = made(Broken)
