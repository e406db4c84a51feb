"""clear_all goes through the first page of sessions, of a hundred."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear-all",)


class Broken(Core):
    def clear_all(self) -> None:
        with self.change() as db:
            db.execute("DELETE FROM messages WHERE session IN (SELECT session FROM sessions LIMIT 100)")


factory = made(Broken)
