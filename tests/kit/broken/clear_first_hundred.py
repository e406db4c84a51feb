"""A clear that deletes one page of a hundred: an erasure request is answered, and the rest is still there."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-clear",)


class Broken(Core):
    def clear(self, session: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            page = "SELECT seq FROM messages WHERE session = ? ORDER BY seq LIMIT 100"
            db.execute(f"DELETE FROM messages WHERE session = ? AND seq IN ({page})", (session, session))
            self.touch(db, session)


factory = made(Broken)
