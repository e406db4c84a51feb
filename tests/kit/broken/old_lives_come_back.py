"""Expiry hides and does not remove: the next hello brings back last year's conversation."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("a-new-life",)


class Broken(Core):
    def begin(self, db: sqlite3.Connection, session: str) -> None:
        db.execute("INSERT OR IGNORE INTO sessions VALUES (?, 0, 1, NULL)", (session,))


factory = made(Broken)
