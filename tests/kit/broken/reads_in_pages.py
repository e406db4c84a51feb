"""Pages by OFFSET, a connection each: a trim between two of them moves everything up."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-read",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        found: list[Any] = []
        page = "SELECT body FROM messages WHERE session = ? ORDER BY seq LIMIT 40 OFFSET ?"
        while True:
            with self.view() as db:
                rows = [] if self.expired(db, session) else db.execute(page, (session, len(found))).fetchall()
            found += [json.loads(body) for (body,) in rows]
            if len(rows) < 40:
                return found if limit is None else found[max(0, len(found) - limit) :]


factory = made(Broken)
