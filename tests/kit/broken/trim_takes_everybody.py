"""The latest n of the whole table are kept: everybody's history is trimmed."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-trim",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            latest = "SELECT rowid FROM messages ORDER BY session = ? DESC, seq DESC LIMIT ?"
            db.execute(f"DELETE FROM messages WHERE rowid NOT IN ({latest})", (session, max_messages))


factory = made(Broken)
