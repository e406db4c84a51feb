"""Fields are rows of their own under the row id of a message: a clear leaves them, and the next message gets the id."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("fields-of-the-removed",)


class Broken(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS fields (message INTEGER, name TEXT, value TEXT)")

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        for message in messages:
            super().put(db, session, [{name: message[name] for name in ("role", "content")}])
            (row,) = db.execute("SELECT last_insert_rowid()").fetchone()
            for name in message.keys() - {"role", "content"}:
                db.execute("INSERT INTO fields VALUES (?, ?, ?)", (row, name, encoded(message[name])))

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        if self.expired(db, session):
            return []
        rows = db.execute("SELECT rowid, body FROM messages WHERE session = ? ORDER BY seq", (session,)).fetchall()
        return [json.loads(body) | self.fields(db, row) for row, body in rows]

    def fields(self, db: sqlite3.Connection, row: int) -> dict[str, Any]:
        found = db.execute("SELECT name, value FROM fields WHERE message = ?", (row,)).fetchall()
        return {name: json.loads(value) for name, value in found}


factory = made(Broken)
