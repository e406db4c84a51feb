"""Keys are deleted with the rows of their turns: a retry that comes after a reset is stored as if it were new."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("late-retry", "sequences")


class Broken(Core):
    def clear(self, session: str) -> None:
        super().clear(session)
        self.forget(session)

    def trim(self, session: str, max_messages: int) -> None:
        super().trim(session, max_messages)
        self.forget(session)

    def forget(self, session: str) -> None:
        with self.change() as db:
            db.execute("DELETE FROM keys WHERE session = ?", (session,))


factory = made(Broken)
