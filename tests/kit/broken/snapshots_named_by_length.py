"""A snapshot is named after the length of its session: after a clear, another state has the same name."""

from __future__ import annotations

import json

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("sequences",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        with self.change() as db:
            self.begin(db, session)
            messages = self.load(db, session)
            snapshot = f"{session}:{len(messages)}"
            db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (snapshot, session, json.dumps(messages)))
            self.touch(db, session)
            return snapshot


factory = made(Broken)
