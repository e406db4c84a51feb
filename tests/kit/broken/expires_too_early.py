"""Seconds cut to whole ones and then halved: conversations vanish before their time."""

from __future__ import annotations

import sqlite3
import time

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("not-too-early",)


class Broken(Core):
    def expired(self, db: sqlite3.Connection, session: str) -> bool:
        row = db.execute("SELECT expires_at FROM sessions WHERE session = ?", (session,)).fetchone()
        return bool(row and row[0] is not None and row[0] - (self.ttl or 0) / 2 <= time.time())


factory = made(Broken)
