"""Every snapshot opens a connection, and leaves it open."""

from __future__ import annotations

import sqlite3

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-in-calls",)
_open: list[sqlite3.Connection] = []


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        _open.append(sqlite3.connect(self.path))
        _open[-1].execute("SELECT count(*) FROM messages").fetchone()
        return super().save_snapshot(session)


factory = made(Broken)
