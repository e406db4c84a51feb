"""Messages are replaced only if there are new ones: a reset by an empty list resets nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("replace-with-nothing",)


class Broken(LlamaIndex):
    def set_messages(self, key: str, messages: Sequence[Any]) -> None:
        if messages:
            super().set_messages(key, messages)


factory = made(Core, Broken)
