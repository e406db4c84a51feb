"""After a deletion the places of the others are not moved up: the next deletion takes the wrong message."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("delete-message",)


class Broken(Core):
    def delete(self, session: str, place: int) -> Any:
        with self.connected() as db:
            (first,) = db.execute("SELECT min(seq) FROM messages WHERE session = ?", (session,)).fetchone()
            db.execute("DELETE FROM messages WHERE session = ? AND seq = ?", (session, (first or 0) + place))
        return None


factory = made(Broken, LlamaIndex)
