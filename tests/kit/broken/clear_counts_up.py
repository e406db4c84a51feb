"""A clear adds the number of visible rows to a floor; two clears at once add it twice."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear-clear",)


class Broken(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS floors (session TEXT PRIMARY KEY, floor INTEGER)")

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        row = db.execute("SELECT floor FROM floors WHERE session = ?", (session,)).fetchone()
        return super().load(db, session)[row[0] if row else 0 :]

    def clear(self, session: str) -> None:
        visible = len(self.read(session))
        with self.change() as db:
            db.execute("INSERT OR IGNORE INTO floors VALUES (?, 0)", (session,))
            db.execute("UPDATE floors SET floor = floor + ? WHERE session = ?", (visible, session))


factory = made(Broken)
