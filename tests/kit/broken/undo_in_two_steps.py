"""Undo removes what is there, and fills in what was in a second transaction."""

from __future__ import annotations

import json

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("killed-in-undo",)


class Broken(Core):
    def undo(self, session: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            latest = "SELECT step, state FROM undo WHERE session = ? ORDER BY step DESC LIMIT 1"
            row = db.execute(latest, (session,)).fetchone()
            if row is None:
                raise ValueError(f"session {session!r} has nothing to undo")
            db.execute("DELETE FROM undo WHERE session = ? AND step = ?", (session, row[0]))
            self.set_all(db, session, [{"role": "user", "content": "under construction"}])
        with self.change() as db:
            self.set_all(db, session, json.loads(row[1]))
            self.touch(db, session)


factory = made(Broken)
