"""The turns are taken out of the session, and then the model is asked for their summary."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingCore, made, summary

CAUGHT_BY = ("compaction-model-fails", "compaction-killed-in-model", "compaction-read", "killed-in-compaction")


class Broken(CompactingCore):
    def compact(self, session: str, summarize: Any, most: int) -> None:
        seen = self.read(session)
        self.trim(session, most)
        text = summarize(seen[: max(len(seen) - most, 0)])
        self.replace(session, [summary(text), *self.read(session)])


factory = made(Broken)
