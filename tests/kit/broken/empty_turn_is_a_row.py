"""An empty turn is stored as a row without a message, and comes back as nothing in particular."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("empty-turn",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        return super().append(session, messages or [{"role": "user", "content": None}], **options)


factory = made(Broken)
