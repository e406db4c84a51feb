"""Looks for the effect in one transaction, and begins it in another."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-race",)


class Broken(ResumingCore):
    def begin_effect(self, session: str, key: str) -> dict[str, Any]:
        with self.view() as db:
            found = self.effect(db, session, key)
        if found is None:
            with self.change() as db:
                self.write_effect(db, session, key, "started")
        return found or {"status": "new"}


factory = made(Broken)
