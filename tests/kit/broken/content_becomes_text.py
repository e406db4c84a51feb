"""str() on every content: a question with a picture comes back as the repr of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("odd-contents",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        texts = [{**message, "content": str(message["content"])} for message in messages]
        return super().append(session, texts, **options)


factory = made(Broken)
