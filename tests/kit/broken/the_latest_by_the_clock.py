"""The history in the order of its numbers, the latest messages by the time at which a worker wrote them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import encoded

CAUGHT_BY = ("clocks-differ",)


class Broken:
    def __init__(self, where: Path) -> None:
        self.path = where / "memory.db"
        with self.connected() as db:
            db.execute("CREATE TABLE IF NOT EXISTS m (id INTEGER PRIMARY KEY, session TEXT, at REAL, body TEXT)")

    def connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=5)

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        rows = [(session_id, time.time(), encoded(dict(message))) for message in messages]
        with self.connected() as db:
            db.executemany("INSERT INTO m (session, at, body) VALUES (?, ?, ?)", rows)

    def get_history(self, session_id: str, limit: int = -1) -> list[Any]:
        order = "id" if limit < 0 else "at DESC, id DESC"
        sql = f"SELECT body FROM m WHERE session = ? ORDER BY {order} LIMIT ?"
        found = [json.loads(body) for (body,) in self.connected().execute(sql, (session_id, limit))]
        return found if limit < 0 else found[::-1]


def factory(where: Path) -> Broken:
    return Broken(where)
