"""Owns the rule of order: units stand in every read in the order in which they were written, whatever was taken away.

Two units are out of order when time says so (one was there before the other's append began) or when reads contradict
each other.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TypeAlias

from everturn.testing.history.findings import Finding, Findings
from everturn.testing.history.parse import Call, Session, Unit
from everturn.testing.history.read_anomalies import Sight
from everturn.testing.history.read_rules import Blame

# Which units come right before a unit, in some read, and a read that shows it.
Before: TypeAlias = dict[Unit, dict[Unit, Call]]

_CYCLES = 10  # contradictions that are looked for one by one; each costs a pass


def find_misordered(session: Session, sights: list[Sight], findings: Findings, blame: Blame) -> Before:
    """Note units that are out of order and blame the reads that show it. Returns the order the other reads show."""
    if session.unordered:  # of a unit that may have been written again, no order is known
        sights = [
            Sight(sight.read, tuple(unit for unit in sight.units if not unit.retries), sight.latest) for sight in sights
        ]
    _against_time(sights, findings, blame)
    for _ in range(_CYCLES):
        kept = blame.cleared(sights)
        before = neighbours(kept)
        cycle = _cycle(before)
        if not cycle:
            return before
        reads = sorted({before[later][earlier] for earlier, later in cycle}, key=lambda read: read.begin)
        blame.reads.add(reads[-1])
        findings.add("misordered", reads[-1], partial(_tell_cycle, cycle, reads, sights))
    blame.reads.update(sight.read for sight in sights)
    return {}


def neighbours(sights: list[Sight]) -> Before:
    """Of each unit, those right before it in some read."""
    before: Before = {}
    previous: tuple[Unit, ...] = ()
    for sight in sights:
        units = sight.units
        known = len(previous) if units[: len(previous)] == previous else 0
        for earlier, later in pairwise(units[max(known - 1, 0) :]):
            before.setdefault(later, {}).setdefault(earlier, sight.read)
        previous = units
    return before


def _against_time(sights: list[Sight], findings: Findings, blame: Blame) -> None:
    written_by: dict[Unit, int] = {}  # when each was there at the latest
    for sight in sights:
        end = sight.read.end
        for unit in sight.units:
            if end < written_by.setdefault(unit, unit.end):
                written_by[unit] = end
    for sight in sights:
        newest: Unit | None = None
        for unit in sight.units:
            if newest is None:
                newest = unit
            elif written_by[unit] < newest.begin:
                blame.reads.add(sight.read)
                findings.add("misordered", unit, partial(_tell_time, sight.read, newest, unit, sights))
            elif unit.begin > newest.begin:
                newest = unit


def _tell_time(read: Call, first: Unit, second: Unit, sights: list[Sight]) -> Finding:
    """`first` stands before `second`, which was there before `first` began."""
    before: tuple[Call, ...] = ()
    if second.end >= first.begin:  # not because it was acknowledged, so because a read had it
        having = (sight.read for sight in sights if second in sight.units)
        before = (min(having, key=lambda read: read.end),)
    wrote = (*second.calls, *first.calls)
    return Finding("misordered", (*first.values, *second.values), read=read, wrote=wrote, before=before)


def _cycle(before: Before) -> list[tuple[Unit, Unit]]:
    """Pairs (earlier, later) that go round in a circle; empty if the order has none."""
    done: set[Unit] = set()
    for start in before:
        path: list[Unit] = []
        on_path: set[Unit] = set()
        ways = [iter((start,))]
        while ways:
            unit = next(ways[-1], None)
            if unit is None:
                ways.pop()
                if path:
                    left = path.pop()
                    on_path.discard(left)
                    done.add(left)
            elif unit in on_path:
                circle = [*path[path.index(unit) :], unit]
                return [(earlier, later) for later, earlier in pairwise(circle)]
            elif unit not in done:
                path.append(unit)
                on_path.add(unit)
                ways.append(iter(before.get(unit, ())))
    return []


def _tell_cycle(cycle: list[tuple[Unit, Unit]], reads: list[Call], sights: list[Sight]) -> Finding:
    if len(reads) == 2:  # two reads: name two units they have in opposite order
        one, other = (next(sight.units for sight in sights if sight.read is read) for read in reads)
        places = {unit: place for place, unit in enumerate(other)}
        common = [unit for unit in one if unit in places]
        for earlier, later in pairwise(common):
            if places[earlier] > places[later]:
                cycle = [(earlier, later)]
                break
    units = dict.fromkeys(unit for pair in cycle for unit in pair)
    return Finding(
        "misordered",
        tuple(value for unit in units for value in unit.values),
        read=reads[-1],
        wrote=tuple(call for unit in units for call in unit.calls),
        before=tuple(reads[:-1]),
        cause="cycle",
    )
