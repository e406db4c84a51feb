"""set_messages deletes what begins with the key, and inserts under it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-replace",)


class Broken(Core):
    def set_all(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        db.execute("DELETE FROM messages WHERE session LIKE ? || '%'", (session,))
        self.put(db, session, messages)


factory = made(Broken)
