"""One slot for the latest snapshot: all handles lead to the same state."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshots-are-many",)


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, self.list_snapshots(session)[-1])


factory = made(Broken)
