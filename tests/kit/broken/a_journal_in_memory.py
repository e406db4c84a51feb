"""The journal is in memory, for speed: killed inside a COMMIT, a worker leaves half of its pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("killed-in-system-call",)


class Broken(Core):
    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with super().connected() as db:
            db.execute("PRAGMA journal_mode=MEMORY")
            yield db


factory = made(Broken)
