"""`messages[-n:]` keeps the latest n, but all of them if n is 0."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("trim-to-nothing",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            self.begin(db, session)
            self.set_all(db, session, self.load(db, session)[-max_messages:])
            self.touch(db, session)


factory = made(Broken)
