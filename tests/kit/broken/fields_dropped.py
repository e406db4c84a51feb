"""langchain-redis 0.2.6: tool calls, id and name are not stored."""

from __future__ import annotations

import sqlite3
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("fields",)


class Broken(Core):
    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        found = super().load(db, session)
        return [{"role": one["role"], "content": one["content"], "id": None, "tool_calls": []} for one in found]


factory = made(Broken)
