"""An empty snapshot is taken for none: rolling back to it does nothing, and says nothing."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshot-of-nothing",)


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        now = self.read(session)
        super().rollback(session, snapshot)
        if not self.read(session):
            self.replace(session, now)


factory = made(Broken)
