"""A sound store with a compaction, in two shapes: the model comes with the call, or with the factory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Agents, Lists

Summarize = Callable[[list[Any]], str]


class CompactingCore(Core):
    """The pieces are methods, for the mutants to break."""

    def compact(self, session: str, summarize: Summarize, most: int) -> None:
        """Read, ask the model with nothing locked, and write if what was read is still there."""
        seen = self.read(session)
        cut = max(len(seen) - most, 0)
        if cut:
            self.write_summary(session, seen, cut, summarize(seen[:cut]))

    def write_summary(self, session: str, seen: list[Any], cut: int, text: str) -> None:
        with self.change() as db:
            self.begin(db, session)
            now = self.load(db, session)
            if self.still_there(now, seen, cut):
                self.remember(db, session)
                self.set_all(db, session, [summary(text), *now[cut:]])
                self.touch(db, session)

    def still_there(self, now: list[Any], seen: list[Any], cut: int) -> bool:
        return now[:cut] == seen[:cut]


class LockingCore(CompactingCore):
    """Keeps every other writer waiting while the model works. Slow, and sound."""

    def compact(self, session: str, summarize: Summarize, most: int) -> None:
        with self.change() as db:
            self.begin(db, session)
            seen = self.load(db, session)
            cut = max(len(seen) - most, 0)
            if cut:
                self.set_all(db, session, [summary(summarize(seen[:cut])), *seen[cut:]])
                self.touch(db, session)


def summary(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


class CompactingLists(Lists):
    core: CompactingCore

    def fold(self, session_id: str, summarize: Summarize, max_messages: int) -> None:
        self.core.compact(session_id, summarize, max_messages)


class CompactingAgents(Agents):
    core: CompactingCore

    def __init__(self, core: CompactingCore, session_id: str, summarize: Summarize) -> None:
        super().__init__(core, session_id)
        self.summarize = summarize

    async def run_compaction(self, args: Any = None) -> None:
        await asyncio.to_thread(self.core.compact, self.session_id, self.summarize, 4)


def made(core: type[CompactingCore] = CompactingCore, shape: type[CompactingLists] = CompactingLists) -> Any:
    """Make the factory of a store whose compaction gets its model with the call."""

    def factory(where: Path) -> Any:
        return shape(core(where))

    return factory


def agents(where: Path, session_id: str, summarize: Summarize) -> Any:
    return CompactingAgents(CompactingCore(where), session_id, summarize)


lists = made()
locking = made(LockingCore)
