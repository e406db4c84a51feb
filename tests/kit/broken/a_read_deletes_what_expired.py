"""A reader that finds a session expired deletes it, in a second transaction: also what was stored in between."""

from __future__ import annotations

import time
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("expired-while-read",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        with self.view() as db:
            row = db.execute("SELECT expires_at FROM sessions WHERE session = ?", (session,)).fetchone()
        if row is not None and row[0] is not None and row[0] <= time.time():
            with self.change() as db:
                for table in ("messages", "sessions"):
                    db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
            return []
        return super().read(session, limit)


factory = made(Broken)
