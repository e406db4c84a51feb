"""A connection in WAL mode lives on across a fork: the parent closes, and the child's turns go with the WAL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Lists

CAUGHT_BY = ("fork",)


class Broken(Core):
    db: sqlite3.Connection | None = None

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        if self.db is None:
            self.db = sqlite3.connect(self.path, timeout=5, isolation_level=None)
            self.db.execute("PRAGMA journal_mode = WAL")
        yield self.db


class Closing(Lists):
    def close(self) -> None:
        if self.core.db is not None:
            self.core.db.close()


def factory(where: Path) -> Closing:
    return Closing(Broken(where))
