"""encode(errors="replace"): every half of a surrogate pair in an id is a question mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-surrogates",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(session.encode(errors="replace").decode(), messages, **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(session.encode(errors="replace").decode(), limit)


factory = made(Broken)
