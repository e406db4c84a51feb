"""Summaries are no messages, so the next model is not given the summary before, and the new one replaces it."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingCore, made

CAUGHT_BY = ("compaction", "compaction-after-others")


class Broken(CompactingCore):
    def compact(self, session: str, summarize: Any, most: int) -> None:
        super().compact(session, lambda messages: summarize([one for one in messages if one["role"] != "system"]), most)


factory = made(Broken)
