"""Releases the lease of a session, whoever holds it."""

from __future__ import annotations

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease-release",)


class Broken(ResumingCore):
    def release(self, session: str, token: int) -> None:
        with self.change() as db:
            db.execute("UPDATE leases SET until = 0 WHERE session = ?", (session,))


factory = made(Broken)
