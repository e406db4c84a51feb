"""set_messages deletes in one transaction and inserts in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("append-replace", "replace-replace")


class Broken(Core):
    def replace(self, session: str, messages: Sequence[Any]) -> None:
        super().replace(session, [])
        with self.change() as db:
            self.put(db, session, messages)
            self.touch(db, session)


factory = made(Broken, LlamaIndex)
