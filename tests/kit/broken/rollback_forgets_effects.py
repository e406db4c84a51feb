"""A rollback takes the effects back that were begun after the snapshot: the world does not know."""

from __future__ import annotations

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-rollback",)


class Broken(ResumingCore):
    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, snapshot)
        with self.change() as db:
            db.execute("DELETE FROM effects WHERE session = ?", (session,))


factory = made(Broken)
