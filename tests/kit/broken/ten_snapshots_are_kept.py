"""Only the latest ten snapshots of a session are kept: the one from before the mistake is gone."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("old-snapshots",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        snapshot = super().save_snapshot(session)
        kept = "SELECT id FROM snapshots WHERE session = ? ORDER BY rowid DESC LIMIT 10"
        with self.change() as db:
            db.execute(f"DELETE FROM snapshots WHERE session = ? AND id NOT IN ({kept})", (session, session))
        return snapshot


factory = made(Broken)
