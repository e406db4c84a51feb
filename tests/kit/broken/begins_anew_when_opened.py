"""DROP TABLE before CREATE TABLE: every deployment begins with an empty memory."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("reopen",)


class Broken(Core):
    def create(self) -> None:
        with self.change() as db:
            db.execute("DROP TABLE IF EXISTS messages")
        super().create()


factory = made(Broken)
