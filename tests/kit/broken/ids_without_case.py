"""COLLATE NOCASE: Session and session are one conversation."""

from __future__ import annotations

from tests.kit.sound import core
from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("isolation",)


class Broken(Core):
    def create(self) -> None:
        with self.change() as db:
            for statement in core.SCHEMA.replace("session TEXT", "session TEXT COLLATE NOCASE").split(";"):
                db.execute(statement)


factory = made(Broken)
