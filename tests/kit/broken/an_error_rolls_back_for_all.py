"""One connection for all tasks: the rollback after an error of one takes along what another has just written."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.core import encoded

CAUGHT_BY = ("refused-beside-append",)


class Broken:
    def __init__(self, where: Path) -> None:
        self.db = sqlite3.connect(where / "memory.db", check_same_thread=False)
        self.db.execute("CREATE TABLE IF NOT EXISTS turns (session TEXT, turn TEXT)")

    async def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        try:
            turn = encoded([dict(message) for message in messages])
            self.db.execute("INSERT INTO turns VALUES (?, ?)", (session_id, turn))
            await asyncio.sleep(0)  # as aiosqlite does for each call
            self.db.commit()
        except Exception:
            self.db.rollback()
            raise

    async def get_history(self, session_id: str) -> list[Any]:
        found = self.db.execute("SELECT turn FROM turns WHERE session = ? ORDER BY rowid", (session_id,)).fetchall()
        return [message for (turn,) in found for message in json.loads(turn)]

    async def close(self) -> None:
        self.db.close()


async def factory(where: Path) -> Broken:
    return Broken(where)


factory.processes = False  # type: ignore[attr-defined]
