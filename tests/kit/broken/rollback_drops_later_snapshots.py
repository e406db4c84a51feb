"""A rollback deletes all that is later, snapshots too."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("roll-forward", "snapshots-are-listed")


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, snapshot)
        with self.change() as db:
            (row,) = db.execute("SELECT rowid FROM snapshots WHERE id = ?", (snapshot,)).fetchone()
            db.execute("DELETE FROM snapshots WHERE session = ? AND rowid > ?", (session, row))


factory = made(Broken)
