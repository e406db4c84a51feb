"""utf8mb3: everything from the first emoji on is cut off."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("emoji-and-direction",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": altered(one["content"])} for one in messages])


def altered(content: str) -> Any:
    return re.split("[\U00010000-\U0010ffff]", content)[0]


factory = made(Broken)
