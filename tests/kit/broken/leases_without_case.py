"""Leases are kept under the id in lower case: a user waits for another one, and frees their lock."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("isolation-of-leases",)


class Broken(ResumingCore):
    def look(self, db: sqlite3.Connection, session: str) -> tuple[int, float]:
        return super().look(db, session.lower())

    def write_lease(self, db: sqlite3.Connection, session: str, token: int, until: float) -> None:
        super().write_lease(db, session.lower(), token, until)

    def release(self, session: str, token: int) -> None:
        super().release(session.lower(), token)


factory = made(Broken)
