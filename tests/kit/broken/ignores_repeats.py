"""INSERT OR IGNORE with a key made of the content: of three times yes, one is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("repeated-call", "equal-messages")


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        there = self.load(db, session)
        super().put(db, session, [message for message in messages if message not in there])


factory = made(Broken)
