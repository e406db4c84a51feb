"""A deleted snapshot is only taken off the list."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("deleted-snapshot",)


class Broken(Core):
    def delete_snapshot(self, session: str, snapshot: str) -> None:
        pass


factory = made(Broken)
