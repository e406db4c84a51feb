"""Two workers read the same document, each changes it, and the second writes over the first."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = (
    *("append-append", "append-trim", "append-clear", "append-snapshot", "append-rollback"),
    *("trim-trim", "trim-clear", "trim-snapshot", "trim-rollback"),
    *("clear-snapshot", "snapshot-snapshot", "snapshot-rollback"),
    *("random-mix", "processes-lose-nothing"),
)


class Broken:
    def __init__(self, where: Path) -> None:
        self.where = where

    def changed(self, session_id: str, change: Callable[[Any], Any]) -> Any:
        path = self.where / f"{session_id.encode().hex()}.json"
        document = json.loads(path.read_text()) if path.exists() else {"messages": [], "snapshots": {}}
        time.sleep(0.002)  # a disk that is mounted over a network
        result = change(document)
        fresh = path.with_suffix(f".{uuid.uuid4().hex}")
        fresh.write_text(json.dumps(document))
        fresh.replace(path)
        return result

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self.changed(session_id, lambda document: document["messages"].extend(messages))

    def get_history(self, session_id: str) -> list[Any]:
        path = self.where / f"{session_id.encode().hex()}.json"
        return json.loads(path.read_text())["messages"] if path.exists() else []

    def trim(self, session_id: str, max_messages: int) -> None:
        def change(document: Any) -> None:
            document["messages"] = document["messages"][max(0, len(document["messages"]) - max_messages) :]

        self.changed(session_id, change)

    def clear(self, session_id: str) -> None:
        self.changed(session_id, lambda document: document["messages"].clear())

    def save_snapshot(self, session_id: str) -> str:
        snapshot = uuid.uuid4().hex
        self.changed(session_id, lambda document: document["snapshots"].update({snapshot: list(document["messages"])}))
        return snapshot

    def rollback_to_snapshot(self, session_id: str, snapshot: str) -> None:
        self.changed(session_id, lambda document: document.update(messages=list(document["snapshots"][snapshot])))


def factory(where: Path) -> Broken:
    return Broken(where)
