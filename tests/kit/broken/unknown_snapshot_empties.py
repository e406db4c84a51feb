"""A snapshot that is not found is taken for an empty one: a typo deletes the conversation."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("unknown-snapshot",)


class Broken(Core):
    def rollback(self, session: str, snapshot: str) -> None:
        try:
            super().rollback(session, snapshot)
        except KeyError:
            self.replace(session, [])


factory = made(Broken)
