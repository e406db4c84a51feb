"""json.loads on whatever can be loaded: the user's example config comes back as a dict."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("looks-like-data",)


class Broken(Core):
    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        super().put(db, session, [one | {"content": altered(one["content"])} for one in messages])


def altered(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


factory = made(Broken)
