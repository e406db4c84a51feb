"""A rollback puts the past back a message at a time: a clear in between deletes half of what it brings back."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clear-rollback", "read-rollback", "killed-in-rollback")


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        now = self.read(session)
        super().rollback(session, snapshot)
        kept = self.read(session)
        self.replace(session, now)
        self.replace(session, kept[:1])
        for message in kept[1:]:
            self.append(session, [message])


factory = made(Broken)
