"""Finishes an effect that nobody began."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-without-begin",)


class Broken(ResumingCore):
    def finish_effect(self, session: str, key: str, result: Any) -> None:
        with self.change() as db:
            found = self.effect(db, session, key)
            if found is None or found["status"] == "started":
                self.write_effect(db, session, key, "finished", result)


factory = made(Broken)
