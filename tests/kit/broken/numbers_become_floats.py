"""NaN becomes null and large integers become floats, as in a jsonb column of another language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("odd-json",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        return super().append(session, [plain(message) for message in messages], **options)


def plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) > 2**53:
        return float(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


factory = made(Broken)
