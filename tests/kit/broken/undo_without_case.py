"""What undo takes back is kept under the id in lower case: one user's undo brings another one's messages."""

from __future__ import annotations

import json
import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-undo",)


class Broken(Core):
    def remember(self, db: sqlite3.Connection, session: str) -> None:
        name = session.lower()
        (step,) = db.execute("SELECT coalesce(max(step), 0) + 1 FROM undo WHERE session = ?", (name,)).fetchone()
        db.execute("INSERT INTO undo VALUES (?, ?, ?)", (name, step, json.dumps(self.load(db, session))))

    def undo(self, session: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            latest = "SELECT step, state FROM undo WHERE session = ? ORDER BY step DESC LIMIT 1"
            row = db.execute(latest, (session.lower(),)).fetchone()
            if row is None:
                raise ValueError(f"session {session!r} has nothing to undo")
            db.execute("DELETE FROM undo WHERE session = ? AND step = ?", (session.lower(), row[0]))
            self.set_all(db, session, json.loads(row[1]))
            self.touch(db, session)


factory = made(Broken)
