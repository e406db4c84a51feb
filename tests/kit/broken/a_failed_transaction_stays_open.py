"""One connection for each thread, and no rollback after an error: every later call of the worker fails."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("after-an-error",)


class Broken(Core):
    def create(self) -> None:
        self.kept = threading.local()
        super().create()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        if not hasattr(self.kept, "db"):
            self.kept.db = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)
        self.kept.db.execute("BEGIN IMMEDIATE")
        yield self.kept.db
        self.kept.db.execute("COMMIT")


factory = made(Broken)
