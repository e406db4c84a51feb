"""A lease is held by a process: two requests of one worker both have it."""

from __future__ import annotations

import os

from tests.kit.sound.resume import Lease, ResumingCore, made

CAUGHT_BY = ("lease-of-a-process",)


class Broken(ResumingCore):
    def create(self) -> None:
        super().create()
        with self.change() as db:
            db.execute("CREATE TABLE IF NOT EXISTS holders (session TEXT PRIMARY KEY, process INTEGER)")

    def lease(self, session: str, seconds: float) -> Lease:
        with self.change() as db:
            row = db.execute("SELECT process FROM holders WHERE session = ?", (session,)).fetchone()
            if row and row[0] == os.getpid():
                token, _ = self.look(db, session)
                self.write_lease(db, session, token, 0.0)
        lease = super().lease(session, seconds)
        with self.change() as db:
            db.execute("INSERT OR REPLACE INTO holders VALUES (?, ?)", (session, os.getpid()))
        return lease


factory = made(Broken)
