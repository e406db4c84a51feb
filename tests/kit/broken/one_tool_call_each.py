"""A column for the tool call of a message: the second call of a message is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("several-tool-calls",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        kept = [
            message | {"tool_calls": message["tool_calls"][:1]} if "tool_calls" in message else message
            for message in messages
        ]
        return super().append(session, kept, **options)


factory = made(Broken)
