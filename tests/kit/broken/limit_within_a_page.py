"""A limit that is applied to the first page of a hundred."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-latest",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        messages = super().read(session)
        return messages if limit is None else messages[:100][-limit:]


factory = made(Broken)
