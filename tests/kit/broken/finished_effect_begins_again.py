"""Keeps others out only while the effect is under way: once it is finished, it is new again."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect",)


class Broken(ResumingCore):
    def finish_effect(self, session: str, key: str, result: Any) -> None:
        super().finish_effect(session, key, result)
        with self.change() as db:
            db.execute("DELETE FROM effects WHERE session = ? AND key = ?", (session, key))


factory = made(Broken)
