"""The expiry is set when the session is new, and never again: it ends in the middle of a sentence."""

from __future__ import annotations

import sqlite3
import time

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("refreshed-by-a-turn",)


class Broken(Core):
    def touch(self, db: sqlite3.Connection, session: str) -> int:
        if self.ttl is not None:
            late = "UPDATE sessions SET expires_at = coalesce(expires_at, ?) WHERE session = ?"
            db.execute(late, (time.time() + self.ttl, session))
        return 0


factory = made(Broken)
