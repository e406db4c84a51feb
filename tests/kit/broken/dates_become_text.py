"""json.dumps(default=str): a date goes in, and a string comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("odd-values",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(session, json.loads(json.dumps(messages, default=str)), **options)


factory = made(Broken)
