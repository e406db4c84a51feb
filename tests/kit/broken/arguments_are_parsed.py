"""The arguments of tool calls are parsed, and written again when they are read: not as the model wrote them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("arguments-are-text",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        parsed = deepcopy(list(messages))
        for message in parsed:
            for call in message.get("tool_calls") or ():
                if "function" in call:
                    call["function"]["arguments"] = json.dumps(read(call["function"]["arguments"]))
        return super().append(session, parsed, **options)


def read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


factory = made(Broken)
