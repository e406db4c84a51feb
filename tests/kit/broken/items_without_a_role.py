"""A session stores items that have a role: calls of functions and their outputs have none, and are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, made_per_session

CAUGHT_BY = ("native-messages",)


class Broken(Agents):
    async def add_items(self, items: Sequence[Any]) -> None:
        await super().add_items([item for item in items if "role" in item])


factory = made_per_session(Core, Broken)
