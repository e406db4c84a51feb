"""A session object compacts the list that it remembers from its last compaction and its own appends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.compaction import CompactingCore, made, summary

CAUGHT_BY = ("compaction-after-others",)


class Broken(CompactingCore):
    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.remembered: dict[str, list[Any]] = {}

    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        if session in self.remembered:
            self.remembered[session].extend(messages)
        return super().append(session, messages, **options)

    def compact(self, session: str, summarize: Any, most: int) -> None:
        seen = self.remembered.get(session) or self.read(session)
        cut = max(len(seen) - most, 0)
        self.remembered[session] = [summary(summarize(seen[:cut])), *seen[cut:]]
        self.replace(session, self.remembered[session])


factory = made(Broken)
