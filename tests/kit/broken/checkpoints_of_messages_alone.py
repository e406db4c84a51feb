"""A checkpointer stores the channel of the messages, and none of the others."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("checkpoint-parts",)


class Broken(LangGraph):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        said = {"messages": checkpoint["channel_values"].get("messages", [])}
        return super().put(config, {**checkpoint, "channel_values": said}, metadata, new_versions)


factory = made(Core, Broken)
