"""With every hundredth message a session is written anew, from what was read before the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("every-so-often",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        receipt = super().append(session, messages, **options)
        with self.view() as db:
            held = self.load(db, session)
        if len(held) >= 100 and len(held) % 100 < len(messages):
            with self.change() as db:
                self.set_all(db, session, held)
        return receipt


factory = made(Broken)
