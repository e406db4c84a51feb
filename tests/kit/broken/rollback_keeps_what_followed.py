"""A rollback puts back what the snapshot held, in front of what followed it."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("rollback",)


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        now = self.read(session)
        super().rollback(session, snapshot)
        kept = self.read(session)
        self.replace(session, kept + [message for message in now if message not in kept])


factory = made(Broken)
