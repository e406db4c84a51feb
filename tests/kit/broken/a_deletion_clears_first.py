"""A deletion clears the list, and writes back the rest in a second transaction."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("killed-in-delete-message",)


class Broken(Core):
    def delete(self, session: str, place: int) -> Any:
        messages = self.read(session)
        if 0 <= place < len(messages):
            self.clear(session)
            self.append(session, messages[:place] + messages[place + 1 :])


factory = made(Broken, shape=LlamaIndex)
