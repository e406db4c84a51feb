"""Rows are sorted by numbers of four digits, as text: after 9999 comes 10000, which is before 9999."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-history",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        numbers = db.execute("SELECT seq FROM messages WHERE session = ?", (session,)).fetchall()
        found = dict(zip(sorted(number for (number,) in numbers), super().load(db, session), strict=True))
        return [found[number] for number in sorted(found, key="{:04d}".format)]


factory = made(Broken)
