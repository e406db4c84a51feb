"""A process that finds no file makes one aside and moves it into place: over a file that others have begun to write."""

from __future__ import annotations

import os
import sqlite3

from tests.kit.sound.core import SCHEMA, Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("open-together",)


class Broken(Core):
    def create(self) -> None:
        if not self.path.exists():
            fresh = self.path.with_suffix(f".{os.getpid()}")
            db = sqlite3.connect(fresh)
            db.executescript(SCHEMA)
            db.close()
            fresh.replace(self.path)


factory = made(Broken)
