"""Violations that the rules found, each with the calls that show it, and the count of all of them.

The rules decide whether there is a violation; explain.py puts it into words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from everturn.testing.history.parse import RecordedCall
from everturn.testing.results import ViolationKind

EXPLAINED = 10  # violations of a kind that are explained in full, per session; the others are only counted

# Variants of a kind; each has a headline of its own.
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


class FoundViolation(msgspec.Struct, frozen=True, eq=False):
    """A violation, with the calls that have a part in it."""

    kind: ViolationKind
    values: tuple[str, ...]  # the ids it is about
    read: RecordedCall | None = None  # the read that shows it
    wrote: tuple[RecordedCall, ...] = ()  # the appends it is about
    took: tuple[RecordedCall, ...] = ()  # destructive calls meanwhile
    before: tuple[RecordedCall, ...] = ()  # reads that saw the right thing, or the other order, before
    after: tuple[RecordedCall, ...] = ()  # reads that saw it afterwards
    cause: Cause = ""
    foreign: tuple[str, ...] = ()  # ids in it that nobody wrote

    @property
    def calls(self) -> list[RecordedCall]:
        """Every call of the violation, once, in the order in which they began."""
        read = () if self.read is None else (self.read,)
        unique = dict.fromkeys((*self.wrote, *self.took, *self.before, *read, *self.after))
        return sorted(unique, key=lambda call: (call.begin, call.end))


class Findings:
    """Counts each violation once, and keeps the first few of each kind for an explanation."""

    def __init__(self) -> None:
        self.counts: dict[ViolationKind, int] = {}
        self.explained: list[FoundViolation] = []
        self._known: set[tuple[ViolationKind, object]] = set()

    def add(self, kind: ViolationKind, about: object, make: Callable[[], FoundViolation]) -> None:
        """Add a violation of `kind` about one unit or id. Adding the same again does nothing."""
        if (kind, about) in self._known:
            return
        self._known.add((kind, about))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= EXPLAINED:
            self.explained.append(make())
