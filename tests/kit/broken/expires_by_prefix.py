"""What expired is deleted by LIKE: user-1 comes back, and user-10 to user-19 have no history."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-expiry",)


class Broken(Core):
    def begin(self, db: sqlite3.Connection, session: str) -> None:
        if self.expired(db, session):
            for table in ("messages", "sessions", "snapshots", "undo", "keys"):
                db.execute(f"DELETE FROM {table} WHERE session LIKE ? || '%'", (session,))
        super().begin(db, session)


factory = made(Broken)
