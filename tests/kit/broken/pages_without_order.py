"""Pages by offset over rows without an order: a page repeats items of the one before, and leaves others out."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Items, made

CAUGHT_BY = ("item-search",)


class Broken(Items):
    def found(self, condition: str, *values: str) -> list[Any]:
        return super().found(condition.replace("ORDER BY rowid", "ORDER BY random()"), *values)


factory = made(Core, Broken)
