"""The article's store: MAX(turn) + 1 outside of a write lock, and what is there already is written over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("append-append", "processes-lose-nothing", "many-sessions")


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **_: Any) -> Any:
        with self.view() as db:
            query = "SELECT coalesce(max(seq), 0) + 1 FROM messages WHERE session = ?"
            (seq,) = db.execute(query, (session,)).fetchone()
        with self.change() as db:
            rows = [(session, seq + number, encoded(message)) for number, message in enumerate(messages)]
            db.executemany("INSERT OR REPLACE INTO messages VALUES (?, ?, ?)", rows)


factory = made(Broken)
