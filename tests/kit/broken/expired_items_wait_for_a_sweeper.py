"""Expired items are there until a sweeper comes by, and a search finds them."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Items, made

CAUGHT_BY = ("expired-items",)


class Broken(Items):
    def is_over(self, expires_at: float | None) -> bool:
        return False


factory = made(Core, Broken)
