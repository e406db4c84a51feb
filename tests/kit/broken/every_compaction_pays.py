"""Says that of compactions at once one asks its model, and looks whether another is at work in its own process only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.sound.compaction import CompactingCore, made

CAUGHT_BY = ("compaction-pays-once",)


class Broken(CompactingCore):
    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.at_work: set[str] = set()

    def compact(self, session: str, summarize: Any, most: int) -> None:
        if session not in self.at_work:
            self.at_work.add(session)
            super().compact(session, summarize, most)
            self.at_work.discard(session)


factory = made(Broken)
factory.pays_once = True
