"""Rules between reads while nothing is taken away: lost, stale, non-prefix. Each costs one pass.

Destructive calls divide the time of a session into gaps. Within a gap a history only grows, so every read continues
the one before it and has everything that was acknowledged. Around destructive calls, linearize.py decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial

import msgspec

from everturn.testing.history.findings import Findings, FoundViolation
from everturn.testing.history.parse import NEVER, RecordedCall, SessionCalls, Unit
from everturn.testing.history.read_anomalies import ReadView
from everturn.testing.results import ViolationKind


class Blame(msgspec.Struct):
    """Lost units and wrong reads. Later rules leave them out, so that one fault is reported once."""

    units: set[Unit] = msgspec.field(default_factory=set)
    reads: set[RecordedCall] = msgspec.field(default_factory=set)

    def cleared(self, views: list[ReadView]) -> list[ReadView]:
        """Remove the blamed units and reads from these views."""
        if not self.units and not self.reads:
            return views
        return [
            ReadView(view.read, tuple(unit for unit in view.units if unit not in self.units), view.latest)
            for view in views
            if view.read not in self.reads
        ]


def last_seen(views: list[ReadView]) -> dict[Unit, int]:
    """Find, for each unit, the end of the latest read that has it; units that no read has are left out."""
    latest: dict[Unit, int] = {}
    for view in views:
        end = view.read.end
        for unit in view.units:
            if latest.get(unit, -1) < end:
                latest[unit] = end
    return latest


def missing_kind(unit: Unit, read: RecordedCall, last_seen: dict[Unit, int]) -> ViolationKind:
    """Name the violation if a read lacks a unit: `stale` if a later read has it, `lost` if it was acknowledged."""
    if last_seen.get(unit, -1) > read.end:
        return "stale"
    return "lost" if unit.acknowledged else "non_prefix"


def missing_violation(
    kind: ViolationKind, unit: Unit, read: RecordedCall, views: list[ReadView], took: tuple[RecordedCall, ...]
) -> FoundViolation:
    """Make the violation of a missing unit, with the last read that saw it before and the first that saw it later."""
    having = [view.read for view in views if unit in view.units]
    before = [other for other in having if other.end < read.begin][-1:]
    after = [other for other in having if other.end > read.end][:1]
    if kind == "lost" and not before:  # a read that overlaps is better than none
        before = having[:1]
    return FoundViolation(
        kind,
        unit.values,
        read=read,
        wrote=unit.calls,
        took=took,
        before=tuple(before),
        after=tuple(after),
        cause="" if unit.acknowledged else "unacked",
    )


def _gaps(session: SessionCalls, views: list[ReadView]) -> list[tuple[int, int, list[ReadView]]]:
    """Find the gaps that contain a read: the moment after which each begins, its end, the views inside it."""
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
    inside: dict[int, list[ReadView]] = {}
    for view in views:
        number = bisect_right(begins, view.read.end)
        if number == 0 or ends[number - 1] < view.read.begin:
            inside.setdefault(number, []).append(view)
    return [
        (ends[number - 1] if number else -1, begins[number] if number < len(begins) else NEVER, found)
        for number, found in inside.items()
    ]


def find_missing(session: SessionCalls, views: list[ReadView], findings: Findings, blame: Blame) -> None:
    """Find reads that lack a unit that was acknowledged, or read, before them.

    Views are of reads of the present state, in the order they began.
    """
    seen_last = last_seen(views)

    def note(unit: Unit, read: RecordedCall) -> None:
        kind = missing_kind(unit, read, seen_last)
        findings.add(kind, unit, lambda: missing_violation(kind, unit, read, views, ()))
        if kind == "stale":
            blame.reads.add(read)
        else:
            blame.units.add(unit)

    for start, end, inside in _gaps(session, views):
        there = _there_since(session, start, end, inside)
        since = sorted(there.values())
        for view in sorted(inside, key=lambda view: view.point):
            point = view.point
            expected = bisect_left(since, point)
            if sum(there[unit] < point for unit in view.units if unit in there) == expected:
                continue
            seen = set(view.units)
            for unit in [unit for unit, when in there.items() if when < point and unit not in seen]:
                note(unit, view.read)
                if unit in blame.units:
                    del there[unit]
            since = sorted(there.values())


def find_diverging_reads(session: SessionCalls, views: list[ReadView], findings: Findings) -> None:
    """Find reads in one gap of which neither continues the other."""
    for _, _, inside in _gaps(session, views):
        longest = max(inside, key=lambda view: len(view.units))
        for view in inside:
            if longest.units[: len(view.units)] != view.units:
                findings.add("non_prefix", view.read, partial(_diverging_violation, view, longest))


def _diverging_violation(view: ReadView, longest: ReadView) -> FoundViolation:
    mine, other = next(pair for pair in zip(view.units, longest.units, strict=False) if pair[0] is not pair[1])
    return FoundViolation(
        "non_prefix",
        (*mine.values, *other.values),
        read=view.read,
        wrote=(*mine.calls, *other.calls),
        before=(longest.read,),
    )


def _there_since(session: SessionCalls, start: int, end: int, inside: list[ReadView]) -> dict[Unit, int]:
    """Find the moment from which on each unit of this gap was there: acknowledged, or seen by a read in the gap.

    Units that began before the gap are left to linearize.py: they may have been removed and brought back.
    """
    units = session.units
    first = bisect_right(units, start, key=_begin)
    last = bisect_left(units, end, key=_begin)
    there = {unit: unit.end for unit in units[first:last] if unit.end != NEVER}
    for view in inside:
        when = view.read.end
        for unit in view.units:
            if unit.begin > start and when < there.get(unit, NEVER):
                there[unit] = when
    return there


def _begin(unit: Unit) -> int:
    return unit.begin
