"""LlamaIndex 0.14.25: SQLiteChatStore.set_messages appends instead of replacing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LlamaIndex, made

CAUGHT_BY = ("replace",)


class Broken(Core):
    def replace(self, session: str, messages: Sequence[Any]) -> None:
        self.append(session, messages)


factory = made(Broken, LlamaIndex)
