"""Percent signs in an id are decoded: a%2Fb and a/b are one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-encoded-ids",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(unquote_plus(session), messages, **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(unquote_plus(session), limit)


factory = made(Broken)
