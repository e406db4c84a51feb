"""A deletion reads the list, and writes it back without one item: what came in between is gone."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("delete-delete", "append-delete")


class Broken(Core):
    def delete(self, session: str, place: int) -> Any:
        messages = self.read(session)
        if 0 <= place < len(messages):
            self.replace(session, messages[:place] + messages[place + 1 :])


factory = made(Broken, shape=LlamaIndex)
