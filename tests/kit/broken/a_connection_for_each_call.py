"""A connection for each call, and none is closed: too many open files, every afternoon at four."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-in-calls",)
KEPT: list[sqlite3.Connection] = []


class Broken(Core):
    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        KEPT.append(db)
        yield db


factory = made(Broken)
