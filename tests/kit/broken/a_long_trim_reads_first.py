"""A trim of more than 50 messages reads, and then writes back what is to stay: a turn in between is gone."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("append-in-long-change",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        messages = self.read(session)
        if len(messages) <= 50:
            super().trim(session, max_messages)
        elif len(messages) > max_messages:
            self.replace(session, messages[len(messages) - max_messages :])


factory = made(Broken)
