"""Renews the lease of a session, whoever holds it."""

from __future__ import annotations

import time

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease-renewed",)


class Broken(ResumingCore):
    def renew(self, session: str, token: int, seconds: float) -> None:
        with self.change() as db:
            db.execute("UPDATE leases SET until = ? WHERE session = ?", (time.time() + seconds, session))


factory = made(Broken)
