"""Strands 1.62.0: the index comes from a counter in memory, read and written in two steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = ("threads-lose-nothing",)


class Broken:
    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.rows: dict[tuple[str, int], Any] = {}

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        index = self.counters.get(session_id, 0)
        time.sleep(0.0005)  # the write to the disk
        self.rows[session_id, index] = list(messages)
        self.counters[session_id] = index + 1

    def get_history(self, session_id: str) -> list[Any]:
        count = self.counters.get(session_id, 0)
        return [message for index in range(count) for message in self.rows[session_id, index]]


def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
factory.share_threads = True  # type: ignore[attr-defined]
