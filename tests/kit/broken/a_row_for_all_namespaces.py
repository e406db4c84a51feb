"""One value has the latest checkpoint of every namespace of a thread, and is read and written back."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("subgraphs-at-once",)


class Broken(LangGraph):
    def store(self, thread: str, row: Any, parent: str | None) -> None:
        super().store(thread, row, parent)
        name, namespace = json.loads(thread)
        held = self.core.read(f"all {name}")
        latest = held[0] if held else {}
        self.core.replace(f"all {name}", [{**latest, namespace: row["checkpoint"]["id"]}])

    def get_tuple(self, config: Any) -> Any:
        named = config["configurable"]
        if named.get("checkpoint_id") is None:
            held = self.core.read(f"all {named['thread_id']}")
            latest = held[0].get(named.get("checkpoint_ns", "")) if held else None
            if latest is None:
                return None
            config = {"configurable": {**named, "checkpoint_id": latest}}
        return super().get_tuple(config)


factory = made(shape=Broken)
