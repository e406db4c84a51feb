"""A scan with a default page of 1,000: the newest are left out in silence."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-history",)


class Broken(Core):
    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(session, limit)[:1000]


factory = made(Broken)
