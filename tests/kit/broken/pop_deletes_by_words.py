"""The last message is taken back by its words: every message that says the same goes with it."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, made_per_session

CAUGHT_BY = ("equal-messages-removed",)


class Broken(Core):
    def pop(self, session: str) -> Any:
        with self.change() as db:
            self.begin(db, session)
            messages = self.load(db, session)
            if not messages:
                return None
            self.set_all(db, session, [message for message in messages if message != messages[-1]])
            self.touch(db, session)
            return messages[-1]


factory = made_per_session(Broken, Agents)
