"""A snapshot is looked up by its id alone: one customer is rolled back to another's words."""

from __future__ import annotations

import json

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshot-of-another-session",)


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        with self.view() as db:
            row = db.execute("SELECT state FROM snapshots WHERE id = ?", (snapshot,)).fetchone()
        if row is None:
            raise KeyError(snapshot)
        self.replace(session, json.loads(row[0]))


factory = made(Broken)
