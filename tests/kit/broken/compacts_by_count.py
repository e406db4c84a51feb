"""As many messages as were summarised are deleted at the front, whichever they are by then."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingCore, made

CAUGHT_BY = ("compaction-clear", "compaction-rollback", "compaction-twice")


class Broken(CompactingCore):
    def still_there(self, now: list[Any], seen: list[Any], cut: int) -> bool:
        return True


factory = made(Broken)
