"""The article's store: a rollback rebuilds a table and wipes the snapshot it came from."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("rollback-twice", "snapshots-persist")


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, snapshot)
        self.delete_snapshot(session, snapshot)


factory = made(Broken)
