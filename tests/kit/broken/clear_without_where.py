"""A session that is not found is cleared without a WHERE: everything goes."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear-absent",)


class Broken(Core):
    def clear(self, session: str) -> None:
        with self.change() as db:
            found = db.execute("DELETE FROM messages WHERE session = ?", (session,)).rowcount
            if not found:
                db.execute("DELETE FROM messages")


factory = made(Broken)
