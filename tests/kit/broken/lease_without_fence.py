"""A lock that expires: whoever had it once may write, however long ago."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease-sleeper",)


class Broken(ResumingCore):
    def fence(self, db: sqlite3.Connection, session: str, token: int) -> None:
        """Believe the caller."""


factory = made(Broken)
