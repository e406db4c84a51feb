"""Lets an effect fail that is finished: it begins again."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-failed",)


class Broken(ResumingCore):
    def fail_effect(self, session: str, key: str, error: Any) -> None:
        with self.change() as db:
            self.write_effect(db, session, key, "failed", error)


factory = made(Broken)
