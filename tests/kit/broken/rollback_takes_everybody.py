"""A snapshot is a copy of the table, and so is a rollback: one customer's rewind is everybody's."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-rollback",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        snapshot = super().save_snapshot(session)
        with self.change() as db:
            db.execute(f"CREATE TABLE copy_{snapshot} AS SELECT * FROM messages")
        return snapshot

    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, snapshot)
        with self.change() as db:
            db.execute("DELETE FROM messages")
            db.execute(f"INSERT INTO messages SELECT * FROM copy_{snapshot}")


factory = made(Broken)
