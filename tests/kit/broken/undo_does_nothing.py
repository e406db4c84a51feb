"""Undo is there, takes the call, and does nothing."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("undo", "undo-of-nothing")


class Broken(Core):
    def undo(self, session: str) -> None:
        pass


factory = made(Broken)
