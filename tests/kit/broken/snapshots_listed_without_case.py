"""Snapshots are listed by the id in lower case: users whose names differ by case see each other's."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-snapshots",)


class Broken(Core):
    def list_snapshots(self, session: str) -> list[str]:
        with self.view() as db:
            rows = db.execute("SELECT id FROM snapshots WHERE lower(session) = lower(?) ORDER BY rowid", (session,))
            return [snapshot for (snapshot,) in rows]


factory = made(Broken)
