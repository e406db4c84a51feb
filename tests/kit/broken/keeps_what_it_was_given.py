"""Keeps the message objects that it was given, and gives them out: a redaction for the log changes the history."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = ("messages-are-copies",)


class Broken:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[str, list[Any]] = {}

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.lock:
            self.sessions[session_id] = [*self.sessions.get(session_id, []), *messages]

    def get_history(self, session_id: str) -> list[Any]:
        with self.lock:
            return list(self.sessions.get(session_id, []))


def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
factory.share_threads = True  # type: ignore[attr-defined]
