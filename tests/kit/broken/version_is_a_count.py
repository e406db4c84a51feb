"""The version is the number of messages: after a clear and some turns, a version from before it is current again."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("versions-do-not-return",)


class Broken(Core):
    def touch(self, db: sqlite3.Connection, session: str) -> int:
        super().touch(db, session)
        (count,) = db.execute("SELECT count(*) FROM messages WHERE session = ?", (session,)).fetchone()
        db.execute("UPDATE sessions SET version = ? WHERE session = ?", (count, session))
        return int(count)


factory = made(Broken)
