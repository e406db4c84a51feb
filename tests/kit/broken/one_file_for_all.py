"""LlamaIndex SimpleChatStore: all sessions in one JSON file, loaded and persisted as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = ("many-sessions",)


class Broken:
    def __init__(self, where: Path) -> None:
        self.path = where / "store.json"

    def load(self) -> Any:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        store = self.load()
        store.setdefault(session_id, []).extend(messages)
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(store))
        fresh.replace(self.path)

    def get_history(self, session_id: str) -> list[Any]:
        return list(self.load().get(session_id, []))


def factory(where: Path) -> Broken:
    return Broken(where)
