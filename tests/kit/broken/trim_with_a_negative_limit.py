"""DELETE ... LIMIT (count - n): where n is larger, SQLite takes a negative limit for none."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("trim-to-more",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            db.execute(
                "DELETE FROM messages WHERE rowid IN (SELECT rowid FROM messages WHERE session = ?1 ORDER BY seq LIMIT"
                " (SELECT count(*) FROM messages WHERE session = ?1) - ?2)",
                (session, max_messages),
            )


factory = made(Broken)
