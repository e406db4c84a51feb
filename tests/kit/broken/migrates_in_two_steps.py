"""A schema made in one transaction and recorded in another: after a crash it is half there for ever."""

from __future__ import annotations

from tests.kit.sound.core import SCHEMA, Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("killed-while-opening",)


class Broken(Core):
    def create(self) -> None:
        with self.view() as db:
            (tables,) = db.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()
        if tables == 0:
            for statement in SCHEMA.split(";"):
                with self.change() as db:
                    db.execute(statement)


factory = made(Broken)
