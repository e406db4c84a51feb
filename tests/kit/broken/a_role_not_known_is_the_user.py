"""Roles are numbers, and one that is not known is the user's: what a tool returned is read as the user's words."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Singles, made

CAUGHT_BY = ("other-roles",)


class Broken(Singles):
    def add_message(self, session_id: str, role: str, content: str) -> None:
        super().add_message(session_id, role if role in {"user", "assistant", "system"} else "user", content)


factory = made(Core, Broken)
