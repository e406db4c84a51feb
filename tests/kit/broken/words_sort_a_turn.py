"""The messages of a turn share one number, as one score in a sorted set: within a turn they sort by their bytes."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("order-of-words",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        messages = super().load(db, session)
        turns = [messages[place : place + 3] for place in range(0, len(messages), 3)]
        return [message for turn in turns for message in sorted(turn, key=lambda one: json.dumps(one["content"]))]


factory = made(Broken)
