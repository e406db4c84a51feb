"""A snapshot that copies what one read of a hundred returns."""

from __future__ import annotations

import json
import uuid

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-snapshot",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        with self.change() as db:
            self.begin(db, session)
            snapshot = uuid.uuid4().hex
            state = json.dumps(self.load(db, session)[:100])
            db.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (snapshot, session, state))
            self.touch(db, session)
            return snapshot


factory = made(Broken)
