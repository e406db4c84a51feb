"""The number of a turn is the time: a clock that was set back gives a number that is smaller, or taken."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import made

CAUGHT_BY = ("clocks-differ", "clock-steps-back")


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        number = time.time_ns()
        for index, message in enumerate(messages):
            db.execute("INSERT OR REPLACE INTO messages VALUES (?, ?, ?)", (session, number + index, encoded(message)))


factory = made(Broken)
