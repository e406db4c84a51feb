"""Every role but user becomes assistant: a system message comes back as the model's words."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("roles",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        found = super().load(db, session)
        return [one | {"role": "user" if one["role"] == "user" else "assistant"} for one in found]


factory = made(Broken)
