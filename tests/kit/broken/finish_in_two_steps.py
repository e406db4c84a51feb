"""Finishes an effect by deleting its row and writing another, in two transactions."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("killed-in-effect",)


class Broken(ResumingCore):
    def finish_effect(self, session: str, key: str, result: Any) -> None:
        with self.change() as db:
            if self.effect(db, session, key) is None:
                raise ValueError(f"effect {key!r} is not started")
            db.execute("DELETE FROM effects WHERE session = ? AND key = ?", (session, key))
        with self.change() as db:
            self.write_effect(db, session, key, "finished", result)


factory = made(Broken)
