"""KEYS user:1* and DEL: clearing user 1 clears users 10 to 19."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-clear",)


class Broken(Core):
    def clear(self, session: str) -> None:
        with self.change() as db:
            db.execute("DELETE FROM messages WHERE session LIKE ? || '%'", (session,))


factory = made(Broken)
