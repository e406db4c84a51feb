"""A trim by DEL and RPUSH drops the EXPIRE: a session that was trimmed never expires."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("expires-after-every-change",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        super().trim(session, max_messages)
        with self.change() as db:
            db.execute("UPDATE sessions SET expires_at = NULL WHERE session = ?", (session,))


factory = made(Broken)
