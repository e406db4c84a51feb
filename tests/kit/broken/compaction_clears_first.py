"""A compaction clears the session, then writes the summary and the rest: two transactions."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.compaction import CompactingCore, made, summary

CAUGHT_BY = ("compaction-append", "compaction-read", "killed-in-compaction")


class Broken(CompactingCore):
    def write_summary(self, session: str, seen: list[Any], cut: int, text: str) -> None:
        now = self.read(session)
        if self.still_there(now, seen, cut):
            self.clear(session)
            self.append(session, [summary(text), *now[cut:]])


factory = made(Broken)
