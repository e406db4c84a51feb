"""VARCHAR(65535): a long tool result is cut in the middle of its JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("sizes",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": altered(one["content"])} for one in messages])


def altered(content: str) -> Any:
    return content[:65535]


factory = made(Broken)
