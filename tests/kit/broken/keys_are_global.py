"""Keys are remembered without the session: the second user's request 1 is taken for a retry."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keys-belong-to-sessions",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        if db.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone():
            return True
        return super().known(db, session, key, messages)


factory = made(Broken)
