"""Every call is kept in a list for debugging: the pod is killed for its memory once a day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("leaks-in-calls",)
KEPT: list[bytearray] = []


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        KEPT.append(bytearray(200_000))
        return super().append(session, messages, **options)


factory = made(Broken)
