"""The error path leaves before the connection is closed: after a bad night no handle is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-in-faults",)
KEPT: list[sqlite3.Connection] = []


class Broken(Core):
    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        KEPT.append(db)
        yield db
        KEPT.remove(db)
        db.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        with self.connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.rollback()
                raise
            db.execute("COMMIT")


factory = made(Broken)
