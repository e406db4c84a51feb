"""Looks whether the lease is free in one transaction, and takes it in another."""

from __future__ import annotations

import time

from tests.kit.sound.resume import Lease, ResumingCore, made

CAUGHT_BY = ("lease-race",)


class Broken(ResumingCore):
    def lease(self, session: str, seconds: float) -> Lease:
        with self.view() as db:
            token, until = self.look(db, session)
        if until > time.time():
            raise ValueError(f"session {session!r} is leased")
        with self.change() as db:
            self.write_lease(db, session, token + 1, time.time() + seconds)
        return Lease(self, session, token + 1)


factory = made(Broken)
