"""An effect is over if its result is true: one that returned nothing begins again."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-results",)


class Broken(ResumingCore):
    def begin_effect(self, session: str, key: str) -> dict[str, Any]:
        with self.change() as db:
            found = self.effect(db, session, key)
            if found is not None and (found["status"] == "started" or found["result"]):
                return found
            self.write_effect(db, session, key, "started")
        return {"status": "new"}


factory = made(Broken)
