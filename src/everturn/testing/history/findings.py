"""Owns what the rules hand over: findings, each with the few calls that show it, and the count of all of them.

It does not decide (the rules do) and does not tell (explain.py does).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from everturn.testing.history.parse import Call
from everturn.testing.results import ViolationKind

TOLD = 10  # findings of a kind that are told in full, in one session; the others are counted

# Which of the ways to be of its kind it is; a story is told differently for each.
Cause: TypeAlias = Literal[
    "",
    "unknown",  # phantom: nobody wrote it
    "elsewhere",  # phantom: written to another session
    "failed",  # phantom: the store said it was not written
    "future",  # phantom: not yet written
    "part",  # torn: not all of a turn
    "inside",  # torn: something else in the middle of a turn
    "within",  # misordered: the messages of one turn
    "cycle",  # misordered: reads contradict each other
    "snapshot",  # non-prefix: a read of a snapshot
    "unexplained",  # non-prefix: nothing simpler can be said
    "erased",  # resurrected: a snapshot that was erased
    "unacked",  # a read had seen it, and it was not acknowledged
]


class Finding(msgspec.Struct, frozen=True, eq=False):
    """A violation, and the part each call plays in it."""

    kind: ViolationKind
    values: tuple[str, ...]  # the ids it is about
    read: Call | None = None  # the read that shows it
    wrote: tuple[Call, ...] = ()  # the appends it is about
    took: tuple[Call, ...] = ()  # what was taken away or brought back meanwhile
    before: tuple[Call, ...] = ()  # reads that saw the right thing, or the other order, before
    after: tuple[Call, ...] = ()  # reads that saw it afterwards
    cause: Cause = ""
    foreign: tuple[str, ...] = ()  # ids in it that nobody wrote

    @property
    def calls(self) -> list[Call]:
        """Every call of the story, once, in the order in which they began."""
        read = () if self.read is None else (self.read,)
        unique = dict.fromkeys((*self.wrote, *self.took, *self.before, *read, *self.after))
        return sorted(unique, key=lambda call: (call.begin, call.end))


class Findings:
    """Counts each violation once, and keeps the first few of each kind to be told."""

    def __init__(self) -> None:
        self.counts: dict[ViolationKind, int] = {}
        self.told: list[Finding] = []
        self._known: set[tuple[ViolationKind, object]] = set()

    def add(self, kind: ViolationKind, about: object, tell: Callable[[], Finding]) -> None:
        """A violation of `kind` about one unit or id; the same again is not counted again."""
        if (kind, about) in self._known:
            return
        self._known.add((kind, about))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= TOLD:
            self.told.append(tell())
