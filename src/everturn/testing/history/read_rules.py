"""Owns the rules between reads while nothing is taken away: lost, stale, non-prefix. Each costs one pass.

Destructive calls divide the time of a session into gaps. Within a gap a history only grows, so every read continues
the one before it and has all that was acknowledged. What happens around destructive calls is for the search.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial

import msgspec

from everturn.testing.history.findings import Finding, Findings
from everturn.testing.history.parse import NEVER, Call, Session, Unit
from everturn.testing.history.read_anomalies import Sight
from everturn.testing.results import ViolationKind


class Blame(msgspec.Struct):
    """What was found guilty, and is left out of what is judged next: units that were lost, reads that were wrong."""

    units: set[Unit] = msgspec.field(default_factory=set)
    reads: set[Call] = msgspec.field(default_factory=set)

    def cleared(self, sights: list[Sight]) -> list[Sight]:
        """The sights without them."""
        if not self.units and not self.reads:
            return sights
        return [
            Sight(sight.read, tuple(unit for unit in sight.units if unit not in self.units), sight.latest)
            for sight in sights
            if sight.read not in self.reads
        ]


def last_seen(sights: list[Sight]) -> dict[Unit, int]:
    """When the latest read ended that has a unit; a unit no read has is left out."""
    latest: dict[Unit, int] = {}
    for sight in sights:
        end = sight.read.end
        for unit in sight.units:
            if latest.get(unit, -1) < end:
                latest[unit] = end
    return latest


def missing_kind(unit: Unit, read: Call, last_seen: dict[Unit, int]) -> ViolationKind:
    """What it is when a read lacks a unit that was there: it comes later, or it was acknowledged, or neither."""
    if last_seen.get(unit, -1) > read.end:
        return "stale"
    return "lost" if unit.acknowledged else "non_prefix"


def tell_missing(kind: ViolationKind, unit: Unit, read: Call, sights: list[Sight], took: tuple[Call, ...]) -> Finding:
    """The finding for a unit a read does not have: with the last read that saw it before, the first that did later."""
    having = [sight.read for sight in sights if unit in sight.units]
    before = [other for other in having if other.end < read.begin][-1:]
    after = [other for other in having if other.end > read.end][:1]
    if kind == "lost" and not before:  # one that overlaps, or whose end came later, tells more than none
        before = having[:1]
    return Finding(
        kind,
        unit.values,
        read=read,
        wrote=unit.calls,
        took=took,
        before=tuple(before),
        after=tuple(after),
        cause="" if unit.acknowledged else "unacked",
    )


def _gaps(session: Session, sights: list[Sight]) -> list[tuple[int, int, list[Sight]]]:
    """The gaps that hold a read: after which moment each begins, when it ends, the sights inside it."""
    begins: list[int] = []
    ends: list[int] = []
    for change in session.changes:
        if not change.destructive:
            continue
        if ends and change.begin <= ends[-1]:
            ends[-1] = max(ends[-1], change.end)
        else:
            begins.append(change.begin)
            ends.append(change.end)
    inside: dict[int, list[Sight]] = {}
    for sight in sights:
        number = bisect_right(begins, sight.read.end)
        if number == 0 or ends[number - 1] < sight.read.begin:
            inside.setdefault(number, []).append(sight)
    return [
        (ends[number - 1] if number else -1, begins[number] if number < len(begins) else NEVER, found)
        for number, found in inside.items()
    ]


def find_missing(session: Session, sights: list[Sight], findings: Findings, blame: Blame) -> None:
    """Reads that do not have what was acknowledged, or had been read, before they can have happened.

    Sights are of reads of the present state, in the order they began.
    """
    seen_last = last_seen(sights)

    def note(unit: Unit, read: Call) -> None:
        kind = missing_kind(unit, read, seen_last)
        findings.add(kind, unit, lambda: tell_missing(kind, unit, read, sights, ()))
        if kind == "stale":
            blame.reads.add(read)
        else:
            blame.units.add(unit)

    for start, end, inside in _gaps(session, sights):
        there = _there_since(session, start, end, inside)
        since = sorted(there.values())
        for sight in sorted(inside, key=lambda sight: sight.point):
            point = sight.point
            expected = bisect_left(since, point)
            if sum(there[unit] < point for unit in sight.units if unit in there) == expected:
                continue
            seen = set(sight.units)
            for unit in [unit for unit, when in there.items() if when < point and unit not in seen]:
                note(unit, sight.read)
                if unit in blame.units:
                    del there[unit]
            since = sorted(there.values())


def find_forks(session: Session, sights: list[Sight], findings: Findings) -> None:
    """Reads in one gap of which neither continues the other."""
    for _, _, inside in _gaps(session, sights):
        longest = max(inside, key=lambda sight: len(sight.units))
        for sight in inside:
            if longest.units[: len(sight.units)] != sight.units:
                findings.add("non_prefix", sight.read, partial(_tell_fork, sight, longest))


def _tell_fork(sight: Sight, longest: Sight) -> Finding:
    mine, other = next(pair for pair in zip(sight.units, longest.units, strict=False) if pair[0] is not pair[1])
    return Finding(
        "non_prefix",
        (*mine.values, *other.values),
        read=sight.read,
        wrote=(*mine.calls, *other.calls),
        before=(longest.read,),
    )


def _there_since(session: Session, start: int, end: int, inside: list[Sight]) -> dict[Unit, int]:
    """When each unit of this gap was there at the latest: it was acknowledged, or a read in this gap had it.

    Units that began before it are left to the search: one that comes and goes may have been lost, or back.
    """
    units = session.units
    first = bisect_right(units, start, key=_begin)
    last = bisect_left(units, end, key=_begin)
    there = {unit: unit.end for unit in units[first:last] if unit.end != NEVER}
    for sight in inside:
        when = sight.read.end
        for unit in sight.units:
            if unit.begin > start and when < there.get(unit, NEVER):
                there[unit] = when
    return there


def _begin(unit: Unit) -> int:
    return unit.begin
