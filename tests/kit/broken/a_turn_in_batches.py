"""A turn of more than 50 messages is stored in batches, each committed: half of it is there after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("large-turn-at-once",)
BATCH = 50


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        for start in range(0, max(len(messages), 1), BATCH):
            receipt = super().append(session, messages[start : start + BATCH], **options)
        return receipt


factory = made(Broken)
