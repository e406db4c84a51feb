"""After a rollback numbers are given out again, and the rows that still have them win."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("rollback-then-append",)


class Broken(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS hidden (session TEXT, seq INTEGER, PRIMARY KEY (session, seq))")

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        seq = len(self.load(db, session))
        for number, message in enumerate(messages, 1):
            row = (session, seq + number, encoded(message))
            db.execute("INSERT OR IGNORE INTO messages VALUES (?, ?, ?)", row)
            db.execute("DELETE FROM hidden WHERE session = ? AND seq = ?", row[:2])

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        hidden = {seq for (seq,) in db.execute("SELECT seq FROM hidden WHERE session = ?", (session,))}
        return [message for seq, message in enumerate(super().load(db, session), 1) if seq not in hidden]

    def rollback(self, session: str, snapshot: str) -> None:
        with self.change() as db:
            (state,) = db.execute("SELECT state FROM snapshots WHERE id = ?", (snapshot,)).fetchone()
            kept = state.count('"role"')
            db.execute("DELETE FROM hidden WHERE session = ?", (session,))
            db.execute(
                "INSERT INTO hidden SELECT session, seq FROM messages WHERE session = ? AND seq > ?", (session, kept)
            )


factory = made(Broken)
