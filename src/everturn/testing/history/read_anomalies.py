"""Finds violations inside one read: phantom, duplicate, torn, misordered within a turn. Makes the view of each read.

Rules between reads are in read_rules.py and order.py. A flaw is corrected in the view (a second copy is dropped, a part
counts as the whole), so that it is reported once and causes no other report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec

from everturn.testing.history.findings import Cause, Findings, FoundViolation
from everturn.testing.history.parse import NEVER, RecordedCall, SessionCalls, Unit
from everturn.testing.results import ViolationKind


class ReadView(msgspec.Struct, eq=False, gc=False):
    """The units that one read saw, in order, and when the latest of them began."""

    read: RecordedCall
    units: tuple[Unit, ...]
    latest: int

    @property
    def point(self) -> int:
        """The earliest moment at which the read can have seen them all: after it and each of the appends began."""
        return max(self.read.begin, self.latest)


def read_views(
    session: SessionCalls, reads: Iterable[RecordedCall], elsewhere: Callable[[str], Unit | None], findings: Findings
) -> list[ReadView]:
    """Make the views of these reads, in the same order. `elsewhere` finds an id that another session wrote."""
    trims = (change.begin for change in session.changes if change.f == "trim")
    reader = _ViewReader(session, elsewhere, findings, trimmed_from=min(trims, default=NEVER))
    return [reader.view(read) for read in reads]


class _ViewReader:
    def __init__(
        self, session: SessionCalls, elsewhere: Callable[[str], Unit | None], findings: Findings, *, trimmed_from: int
    ) -> None:
        self._written = session.written
        self._elsewhere = elsewhere
        self._findings = findings
        self._trimmed_from = trimmed_from
        # The latest view without a flaw: most reads continue an earlier one.
        self._known: tuple[str, ...] = ()
        self._sight: ReadView | None = None

    def view(self, read: RecordedCall) -> ReadView:
        view = self._flawless_view(read)
        if view is None:
            units = self._corrected_units(read)
            return ReadView(read, tuple(units), max(map(_begin, units), default=-1))
        self._known, self._sight = read.values, view
        return view

    def _flawless_view(self, read: RecordedCall) -> ReadView | None:
        """Make the view of a read without flaws: whole units, each once, written by then. None if there is a flaw."""
        values, units, latest = read.values, list[Unit](), -1
        known: tuple[str, ...] = ()
        if self._sight is not None and values[: len(self._known)] == self._known:
            known, units, latest = self._known, list(self._sight.units), self._sight.latest
        find, place, end = self._written.get, len(known), len(values)
        while place < end:
            unit = find(values[place])
            if unit is None or unit.failed or values[place : place + len(unit.values)] != unit.values:
                return None
            units.append(unit)
            latest = max(latest, unit.begin)
            place += len(unit.values)
        if latest > read.end or (len(known) < end and len(set(units)) != len(units)):
            return None
        return ReadView(read, tuple(units), latest)

    def _corrected_units(self, read: RecordedCall) -> list[Unit]:
        """Go through a read message by message, and add every flaw. Returns the units of the corrected view."""
        places: dict[Unit, list[tuple[int, int]]] = {}  # of each of its messages: place in the read, place in the unit
        for place, value in enumerate(read.values):
            unit = self._written.get(value)
            if unit is None:
                other = self._elsewhere(value)
                if other is None:
                    self._note("phantom", (value,), read, cause="unknown", foreign=(value,))
                else:
                    self._note("phantom", (value,), read, other, cause="elsewhere")
            else:
                places.setdefault(unit, []).append((place, unit.values.index(value)))
        units = []
        for unit, found in places.items():
            if unit.failed:
                self._note("phantom", unit.values, read, unit, cause="failed")
            elif unit.begin > read.end:
                self._note("phantom", unit.values, read, unit, cause="future")
            else:
                self._judge(read, unit, found)
                units.append(unit)
        return units

    def _judge(self, read: RecordedCall, unit: Unit, found: list[tuple[int, int]]) -> None:
        offsets = [offset for _, offset in found]
        first, size = found[0][0], len(unit.values)
        if len(set(offsets)) != len(offsets):
            self._note("duplicate", unit.values, read, unit)
        elif offsets != sorted(offsets):
            self._note("misordered", unit.values, read, unit, cause="within")
        elif len(offsets) < size:
            side_by_side = found[-1][0] - first == len(found) - 1
            # A trim may cut through a unit: then its last messages are the first that are left.
            cut_off = first == 0 and side_by_side and offsets[-1] == size - 1 and self._trimmed_from <= read.end
            if not cut_off:
                self._note("torn", unit.values, read, unit, cause="part")
        elif found[-1][0] - first != size - 1:
            gap = next(place for (place, _), (then, _) in pairwise(found) if then != place + 1) + 1
            inside = self._written.get(read.values[gap])
            foreign = () if inside else (read.values[gap],)
            self._note(
                "torn",
                unit.values,
                read,
                unit,
                cause="inside",
                others=inside.calls if inside else (),
                foreign=foreign,
            )

    def _note(
        self,
        kind: ViolationKind,
        values: tuple[str, ...],
        read: RecordedCall,
        unit: Unit | None = None,
        *,
        cause: Cause = "",
        others: tuple[RecordedCall, ...] = (),
        foreign: tuple[str, ...] = (),
    ) -> None:
        wrote = (*unit.calls, *others) if unit else ()
        about = values if cause == "elsewhere" else unit or values
        found = FoundViolation(kind, values, read=read, wrote=wrote, cause=cause, foreign=foreign)
        self._findings.add(kind, about, lambda: found)


def _begin(unit: Unit) -> int:
    return unit.begin
