"""A snapshot reads the table in two goes: a turn stored between them is in it by half."""

from __future__ import annotations

import json
import time
import uuid

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshot-is-a-cut",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        rows: list[tuple[int, str]] = []
        for rest in (0, 1):
            time.sleep(0.002)  # a large table
            with self.view() as db:
                part = "SELECT seq, body FROM messages WHERE session = ? AND seq % 2 = ?"
                rows += db.execute(part, (session, rest)).fetchall()
        state = json.dumps([json.loads(body) for _, body in sorted(rows)])
        snapshot = uuid.uuid4().hex
        with self.change() as db:
            self.begin(db, session)
            db.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (snapshot, session, state))
        return snapshot


factory = made(Broken)
