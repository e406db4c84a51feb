"""Every change deletes in batches of 25, each committed: after a crash a conversation begins in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("killed-in-long-change",)


class Broken(Core):
    def delete_page(self, session: str) -> int:
        with self.change() as db:
            page = "SELECT seq FROM messages WHERE session = ? ORDER BY seq LIMIT 25"
            found = db.execute(page, (session,)).fetchall()
            db.executemany("DELETE FROM messages WHERE session = ? AND seq = ?", [(session, seq) for (seq,) in found])
            return len(found)

    def empty(self, session: str) -> None:
        while self.delete_page(session):
            pass

    def clear(self, session: str) -> None:
        self.empty(session)
        super().clear(session)

    def trim(self, session: str, max_messages: int) -> None:
        while len(self.read(session)) - 25 > max_messages:
            self.delete_page(session)
        super().trim(session, max_messages)

    def replace(self, session: str, messages: Sequence[Any]) -> None:
        self.empty(session)
        super().replace(session, messages)

    def rollback(self, session: str, snapshot: str) -> None:
        self.empty(session)
        super().rollback(session, snapshot)


factory = made(Broken)
