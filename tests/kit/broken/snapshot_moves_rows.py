"""A snapshot moves the rows out of the way, copies them, and moves them back."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("read-snapshot", "killed-in-snapshot")


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        snapshot = super().save_snapshot(session)
        for old, new in ((session, f"moved {session}"), (f"moved {session}", session)):
            with self.change() as db:
                db.execute("UPDATE messages SET session = ? WHERE session = ?", (new, old))
        return snapshot


factory = made(Broken)
