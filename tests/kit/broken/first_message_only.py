"""Of a turn only the first message is stored: the answer is not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("store-and-retrieve",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, messages[:1])


factory = made(Broken)
