"""A clear notes the time, and later turns are shown: a worker whose clock is behind writes turns that nobody sees."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clocks-differ-in-changes",)


class Broken(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS cleared (session TEXT PRIMARY KEY, at REAL)")

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [{"at": time.time(), "message": message} for message in messages])

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        (at,) = db.execute("SELECT coalesce(max(at), 0) FROM cleared WHERE session = ?", (session,)).fetchone()
        return [row["message"] for row in super().load(db, session) if row["at"] > at]

    def clear(self, session: str) -> None:
        with self.change() as db:
            db.execute("INSERT OR REPLACE INTO cleared VALUES (?, ?)", (session, time.time()))


factory = made(Broken)
