"""A reader gets the messages by one read and the summary by another; a compaction between them shows turns twice."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingLists, made

CAUGHT_BY = ("compaction-read",)


class Broken(CompactingLists):
    def get_history(self, session_id: str, limit: int | None = None) -> list[Any]:
        messages = [one for one in super().get_history(session_id, limit) if one["role"] != "system"]
        return [one for one in self.core.read(session_id) if one["role"] == "system"] + messages


factory = made(shape=Broken)
