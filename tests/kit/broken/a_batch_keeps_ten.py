"""mem0 2.2.1: a batch of 30 keeps the oldest 10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("large-turn",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        return super().append(session, messages[:10], **options)


factory = made(Broken)
