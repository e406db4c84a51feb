"""LangChain's Postgres history: a turn is several inserts, each committed; a clear is as many deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("append-read", "whole-turns", "killed-in-append", "read-clear", "killed-in-clear", "random-kills")


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        receipt = None
        for message in messages:
            receipt = super().append(session, [message])
        return receipt

    def clear(self, session: str) -> None:
        with self.view() as db:
            rows = db.execute("SELECT seq FROM messages WHERE session = ? ORDER BY seq", (session,)).fetchall()
        for row in rows:
            with self.change() as db:
                db.execute("DELETE FROM messages WHERE session = ? AND seq = ?", (session, *row))


factory = made(Broken)
