"""The key is stored in a transaction of its own, before the turn: after a crash the retry is taken for done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("killed-in-keyed-append",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], *, key: str | None = None, **options: Any) -> Receipt:
        if key is not None:
            with self.change() as db:
                self.begin(db, session)
                if self.known(db, session, key, messages):
                    return Receipt(0)
        return super().append(session, messages, **options)


factory = made(Broken)
