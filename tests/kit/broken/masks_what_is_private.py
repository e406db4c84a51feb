"""Thirteen to sixteen digits are taken for a credit card, and masked before they are stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("looks-private",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(session, [masked(message) for message in messages], **options)


def masked(message: Any) -> Any:
    if not isinstance(message.get("content"), str):
        return message
    return {**message, "content": re.sub(r"\b\d{13,16}\b", "[card]", message["content"])}


factory = made(Broken)
