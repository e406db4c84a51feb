"""OpenAI Agents 0.24.0: a row that cannot be decoded is skipped in silence."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("garbage",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        db.text_factory = bytes
        found = []
        for (body,) in db.execute("SELECT body FROM messages WHERE session = ? ORDER BY seq", (session,)).fetchall():
            try:
                found.append(json.loads(body))
            except ValueError:
                continue
        return found


factory = made(Broken)
