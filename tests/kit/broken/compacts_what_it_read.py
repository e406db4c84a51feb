"""openai-agents-python#4679: the summary and the list that was read before the model was asked replace everything."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingCore, made, summary

CAUGHT_BY = ("compaction-append", "compaction-clear", "compaction-rollback", "compaction-twice")


class Broken(CompactingCore):
    def write_summary(self, session: str, seen: list[Any], cut: int, text: str) -> None:
        self.replace(session, [summary(text), *seen[cut:]])


factory = made(Broken)
