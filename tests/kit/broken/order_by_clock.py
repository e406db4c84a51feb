"""Google ADK 2.13.0: messages sort by timestamp, those of one second by a random id."""

from __future__ import annotations

import json
import random
import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("order", "writers-keep-their-order")


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        # All of a test's messages come within the same second.
        found = db.execute("SELECT seq, body FROM messages WHERE session = ?", (session,)).fetchall()
        found.sort(key=lambda row: random.Random(f"{session} {row[0]}").random())
        return [json.loads(body) for _, body in found]


factory = made(Broken)
