"""Rule of order: every read has units in the order in which they were written, also after a removal.

Two units are out of order if time says so (one was there before the other's append began), or if two reads disagree.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TypeAlias

from everturn.testing.history.findings import Findings, FoundViolation
from everturn.testing.history.parse import RecordedCall, SessionCalls, Unit
from everturn.testing.history.read_anomalies import ReadView
from everturn.testing.history.read_rules import Blame

# For each unit: the units right before it in some read, each with such a read.
Before: TypeAlias = dict[Unit, dict[Unit, RecordedCall]]

_CYCLES = 10  # contradictions to look for; each costs a pass


def find_misordered(session: SessionCalls, views: list[ReadView], findings: Findings, blame: Blame) -> Before:
    """Add units that are out of order, and blame the reads that show it. Returns the order of the other reads."""
    if session.unordered:  # of a unit that may have been written again, no order is known
        views = [
            ReadView(view.read, tuple(unit for unit in view.units if not unit.retries), view.latest) for view in views
        ]
    _against_time(views, findings, blame)
    for _ in range(_CYCLES):
        kept = blame.cleared(views)
        before = neighbours(kept)
        cycle = _cycle(before)
        if not cycle:
            return before
        reads = sorted({before[later][earlier] for earlier, later in cycle}, key=lambda read: read.begin)
        blame.reads.add(reads[-1])
        findings.add("misordered", reads[-1], partial(_cycle_violation, cycle, reads, views))
    blame.reads.update(view.read for view in views)
    return {}


def neighbours(views: list[ReadView]) -> Before:
    """Find, for each unit, the units right before it in some read."""
    before: Before = {}
    previous: tuple[Unit, ...] = ()
    for view in views:
        units = view.units
        known = len(previous) if units[: len(previous)] == previous else 0
        for earlier, later in pairwise(units[max(known - 1, 0) :]):
            before.setdefault(later, {}).setdefault(earlier, view.read)
        previous = units
    return before


def _against_time(views: list[ReadView], findings: Findings, blame: Blame) -> None:
    written_by: dict[Unit, int] = {}  # when each was there at the latest
    for view in views:
        end = view.read.end
        for unit in view.units:
            if end < written_by.setdefault(unit, unit.end):
                written_by[unit] = end
    for view in views:
        newest: Unit | None = None
        for unit in view.units:
            if newest is None:
                newest = unit
            elif written_by[unit] < newest.begin:
                blame.reads.add(view.read)
                findings.add("misordered", unit, partial(_time_violation, view.read, newest, unit, views))
            elif unit.begin > newest.begin:
                newest = unit


def _time_violation(read: RecordedCall, first: Unit, second: Unit, views: list[ReadView]) -> FoundViolation:
    """Make the violation: `first` stands before `second`, which was there before `first` began."""
    before: tuple[RecordedCall, ...] = ()
    if second.end >= first.begin:  # not because it was acknowledged, so because a read had it
        having = (view.read for view in views if second in view.units)
        before = (min(having, key=lambda read: read.end),)
    wrote = (*second.calls, *first.calls)
    return FoundViolation("misordered", (*first.values, *second.values), read=read, wrote=wrote, before=before)


def _cycle(before: Before) -> list[tuple[Unit, Unit]]:
    """Find pairs (earlier, later) that form a cycle; empty if there is none."""
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


def _cycle_violation(
    cycle: list[tuple[Unit, Unit]], reads: list[RecordedCall], views: list[ReadView]
) -> FoundViolation:
    if len(reads) == 2:  # two reads: name two units they have in opposite order
        one, other = (next(view.units for view in views if view.read is read) for read in reads)
        places = {unit: place for place, unit in enumerate(other)}
        common = [unit for unit in one if unit in places]
        for earlier, later in pairwise(common):
            if places[earlier] > places[later]:
                cycle = [(earlier, later)]
                break
    units = dict.fromkeys(unit for pair in cycle for unit in pair)
    return FoundViolation(
        "misordered",
        tuple(value for unit in units for value in unit.values),
        read=reads[-1],
        wrote=tuple(call for unit in units for call in unit.calls),
        before=tuple(reads[:-1]),
        cause="cycle",
    )
