"""A default that nobody had asked for: a session without a ttl lives for a second."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("no-ttl-no-expiry",)


class Broken(Core):
    def touch(self, db: sqlite3.Connection, session: str) -> int:
        self.ttl = self.ttl or 1.0
        return super().touch(db, session)


factory = made(Broken)
