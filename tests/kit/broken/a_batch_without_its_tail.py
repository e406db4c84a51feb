"""A turn of more than 100 messages is written in full batches of 100: what is left over is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("large-turn",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        full = len(messages) // 100 * 100
        super().put(db, session, messages[: full or None])


factory = made(Broken)
