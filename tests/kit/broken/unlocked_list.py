"""A list in memory, read and written back by threads without a lock; no driver call shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = ("append-append",)


class Broken:
    def __init__(self) -> None:
        self.sessions: dict[str, list[Any]] = {}

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        history = list(self.sessions.get(session_id, []))
        history.extend(messages)
        self.sessions[session_id] = history

    def get_history(self, session_id: str) -> list[Any]:
        return list(self.sessions.get(session_id, []))


def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
factory.share_threads = True  # type: ignore[attr-defined]
