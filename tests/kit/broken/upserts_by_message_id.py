"""INSERT OR REPLACE by the message's own id: of answers that all have the id __fake_id__, the last is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("equal-ids",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        ids = {message["id"] for message in messages if isinstance(message, dict) and "id" in message}
        kept = [one for one in self.load(db, session) if not isinstance(one, dict) or one.get("id") not in ids]
        db.execute("DELETE FROM messages WHERE session = ?", (session,))
        super().put(db, session, [*kept, *messages])


factory = made(Broken)
