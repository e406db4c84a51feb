"""The next number is the count of rows: after a trim it is that of a row which is still there."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("trim-then-append",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        for message in messages:
            (count,) = db.execute("SELECT count(*) FROM messages WHERE session = ?", (session,)).fetchone()
            db.execute("INSERT OR REPLACE INTO messages VALUES (?, ?, ?)", (session, count + 1, encoded(message)))

    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            (last,) = db.execute("SELECT max(seq) FROM messages WHERE session = ?", (session,)).fetchone()
            db.execute("DELETE FROM messages WHERE session = ? AND seq <= ?", (session, (last or 0) - max_messages))


factory = made(Broken)
