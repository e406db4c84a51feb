"""A clear removes all that has the session's name on it, its snapshots too."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear-keeps-snapshots",)


class Broken(Core):
    def clear(self, session: str) -> None:
        super().clear(session)
        with self.change() as db:
            db.execute("DELETE FROM snapshots WHERE session = ?", (session,))


factory = made(Broken)
