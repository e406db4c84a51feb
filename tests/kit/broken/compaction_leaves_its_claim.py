"""A mark keeps workers from paying twice; when the model raises, the mark stays, and nobody compacts again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.sound.compaction import CompactingCore, made

CAUGHT_BY = ("compaction-model-fails",)


class Broken(CompactingCore):
    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.where = where

    def compact(self, session: str, summarize: Any, most: int) -> None:
        claim = self.where / f"{session}.claim"
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            return
        super().compact(session, summarize, most)
        claim.unlink()


factory = made(Broken)
