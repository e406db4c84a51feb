"""One connection for each thread; a lock that is not had leaves its transaction open, and every later call fails."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import SCHEMA, Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("after-a-fault",)


class Broken(Core):
    def create(self) -> None:
        self.kept = threading.local()
        with Core.change(self) as db:
            for statement in SCHEMA.split(";"):
                db.execute(statement)

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        if not hasattr(self.kept, "db"):
            self.kept.db = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)
        db = self.kept.db
        db.execute("BEGIN")
        db.execute("DELETE FROM messages WHERE session IS NULL")  # takes the lock
        try:
            yield db
        except BaseException:
            db.rollback()
            raise
        db.execute("COMMIT")


factory = made(Broken)
