"""Ids go through uuid.UUID where they can: one without hyphens is the session of the one that has them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation-of-spellings",)


def named(session: str) -> str:
    try:
        return str(uuid.UUID(session))
    except ValueError:
        return session


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(named(session), messages, **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(named(session), limit)

    def clear(self, session: str) -> None:
        super().clear(named(session))


factory = made(Broken)
