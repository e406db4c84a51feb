"""What was read is kept in the module, by the session's name: stores at two places in one process share it."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("two-stores",)
KEPT: dict[str, tuple[Any, list[Any]]] = {}


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        with self.view() as db:
            mark = db.execute("SELECT count(*), max(seq) FROM messages WHERE session = ?", (session,)).fetchone()
        if limit is None and session in KEPT and KEPT[session][0] == mark:
            return list(KEPT[session][1])
        found = super().read(session, limit)
        if limit is None:
            KEPT[session] = (mark, list(found))
        return found


factory = made(Broken)
