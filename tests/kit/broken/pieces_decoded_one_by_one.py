"""A message is stored in pieces of 4,096 bytes, each of which is decoded on its own when it is read."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-unicode",)
PIECE = 4_096


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        if self.expired(db, session):
            return []
        rows = db.execute("SELECT body FROM messages WHERE session = ? ORDER BY seq", (session,))
        return [json.loads(_joined(body.encode())) for (body,) in rows.fetchall()]


def _joined(body: bytes) -> str:
    pieces = (body[place : place + PIECE] for place in range(0, len(body), PIECE))
    return "".join(piece.decode(errors="replace") for piece in pieces)


factory = made(Broken)
