"""A C string somewhere on the way: the message ends at the NUL."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("nul",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": altered(one["content"])} for one in messages])


def altered(content: str) -> Any:
    return content.split("\0", maxsplit=1)[0]


factory = made(Broken)
