"""Messages are stored under a hash of their words, and a clear deletes those, whoever else has said the same."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("equal-sessions",)


class Broken(Core):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS words (hash TEXT PRIMARY KEY)")

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        for message in messages:
            db.execute("INSERT OR IGNORE INTO words VALUES (?)", (_hash(message),))
        super().put(db, session, messages)

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        there = {name for (name,) in db.execute("SELECT hash FROM words")}
        return [message for message in super().load(db, session) if _hash(message) in there]

    def clear(self, session: str) -> None:
        words = [_hash(message) for message in self.read(session)]
        super().clear(session)
        with self.change() as db:
            for name in words:
                db.execute("DELETE FROM words WHERE hash = ?", (name,))


def _hash(message: Any) -> str:
    return hashlib.sha256(encoded(message).encode()).hexdigest()


factory = made(Broken)
