"""Undo steps are kept in the instance: another process cannot undo."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("undo-persists",)


class Broken(Core):
    def clear(self, session: str) -> None:
        self.steps = getattr(self, "steps", {})
        self.steps.setdefault(session, []).append(self.read(session))
        super().clear(session)

    def undo(self, session: str) -> None:
        self.replace(session, getattr(self, "steps", {})[session].pop())


factory = made(Broken)
