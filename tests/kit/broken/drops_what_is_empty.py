"""A message without text is not stored: the tool call that it carried is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("empty-content",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [message for message in messages if message["content"]])


factory = made(Broken)
