"""The latest twenty keys are kept, of all sessions together: with a few more users, retries are stored twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("keys-are-kept",)


class Broken(Core):
    def known(self, db: sqlite3.Connection, session: str, key: str, messages: Sequence[Any]) -> bool:
        found = super().known(db, session, key, messages)
        db.execute("DELETE FROM keys WHERE rowid <= (SELECT max(rowid) FROM keys) - 20")
        return found


factory = made(Broken)
