"""PRAGMA synchronous=OFF by Python's sqlite3: fast in the benchmark, and empty after a power cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("append-synced", "power-loss-files")


class Broken(Core):
    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with super().connected() as db:
            db.execute("PRAGMA synchronous=OFF")
            yield db


factory = made(Broken)
