"""LlamaIndex SQLAlchemyChatStore.set_messages commits its delete first; rollback and trim go by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = (
    *("read-trim", "read-rollback", "rollback-rollback"),
    *("killed-in-trim", "killed-in-rollback", "killed-in-replace"),
)


class Broken(Core):
    def set_all(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        db.execute("DELETE FROM messages WHERE session = ?", (session,))
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        self.put(db, session, messages)


factory = made(Broken)
