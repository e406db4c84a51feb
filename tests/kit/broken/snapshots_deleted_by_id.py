"""A snapshot is deleted by its id alone: whoever knows the handle deletes another session's."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-snapshots",)


class Broken(Core):
    def delete_snapshot(self, session: str, snapshot: str) -> None:
        with self.change() as db:
            db.execute("DELETE FROM snapshots WHERE id = ?", (snapshot,))


factory = made(Broken)
