"""Owns what each read saw, as units, and what is wrong in it by itself: phantom, duplicate, torn, misordered within.

What is wrong between reads is for the rules. A flaw is mended in the sight (a second copy dropped, a part counted as
the whole), so that it is found once and nothing else is blamed on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec

from everturn.testing.history.findings import Cause, Finding, Findings
from everturn.testing.history.parse import NEVER, Call, Session, Unit
from everturn.testing.results import ViolationKind


class Sight(msgspec.Struct, eq=False, gc=False):
    """What one read saw: units in order, and when the latest of them began."""

    read: Call
    units: tuple[Unit, ...]
    latest: int

    @property
    def point(self) -> int:
        """The earliest moment at which it can have seen them all: it began, and so had each append."""
        return max(self.read.begin, self.latest)


def look(
    session: Session, reads: Iterable[Call], elsewhere: Callable[[str], Unit | None], findings: Findings
) -> list[Sight]:
    """The sights of these reads, in the same order. `elsewhere` finds who wrote an id in another session."""
    trims = (change.begin for change in session.changes if change.f == "trim")
    looking = _Looking(session, elsewhere, findings, trimmed_from=min(trims, default=NEVER))
    return [looking.at(read) for read in reads]


class _Looking:
    def __init__(
        self, session: Session, elsewhere: Callable[[str], Unit | None], findings: Findings, *, trimmed_from: int
    ) -> None:
        self._written = session.written
        self._elsewhere = elsewhere
        self._findings = findings
        self._trimmed_from = trimmed_from
        # The latest sight without a flaw: most reads go on from where another stopped.
        self._known: tuple[str, ...] = ()
        self._sight: Sight | None = None

    def at(self, read: Call) -> Sight:
        sight = self._whole(read)
        if sight is None:
            units = self._mend(read)
            return Sight(read, tuple(units), max(map(_begin, units), default=-1))
        self._known, self._sight = read.values, sight
        return sight

    def _whole(self, read: Call) -> Sight | None:
        """The quick way: whole units, each once, that were written by then. None if there is any flaw."""
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
        return Sight(read, tuple(units), latest)

    def _mend(self, read: Call) -> list[Unit]:
        """The slow way: message by message, noting every flaw."""
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

    def _judge(self, read: Call, unit: Unit, found: list[tuple[int, int]]) -> None:
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
        read: Call,
        unit: Unit | None = None,
        *,
        cause: Cause = "",
        others: tuple[Call, ...] = (),
        foreign: tuple[str, ...] = (),
    ) -> None:
        wrote = (*unit.calls, *others) if unit else ()
        about = values if cause == "elsewhere" else unit or values
        found = Finding(kind, values, read=read, wrote=wrote, cause=cause, foreign=foreign)
        self._findings.add(kind, about, lambda: found)


def _begin(unit: Unit) -> int:
    return unit.begin
