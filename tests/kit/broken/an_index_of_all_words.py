"""An index in memory of all that was ever said, which no clear empties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-in-calls",)
_index: list[Any] = []


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        _index.extend(dict(message) for message in messages)
        return super().append(session, messages, **options)


factory = made(Broken)
