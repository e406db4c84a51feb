"""clear deletes all rows of a session, its lease among them: a second worker begins."""

from __future__ import annotations

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease-after-changes",)


class Broken(ResumingCore):
    def clear(self, session: str) -> None:
        super().clear(session)
        with self.change() as db:
            db.execute("DELETE FROM leases WHERE session = ?", (session,))


factory = made(Broken)
