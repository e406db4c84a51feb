"""Fast path: accepts a session of appends and reads only that is in order, in one pass.

Ids are unique and reads return whole histories, so there is only one order to try. If the answer is no, or if something
was taken away, the rules and the search find out what is wrong.
"""

from __future__ import annotations

from everturn.testing.history.parse import RecordedCall, SessionCalls, Unit


def certainly_in_order(session: SessionCalls) -> bool:
    """Whether one order of all calls explains every read: exact for appends and reads, False with destructive calls."""
    if session.past_reads or any(change.destructive for change in session.changes):
        return False
    reads = sorted(session.reads, key=_length)
    longest = reads[-1].values if reads else ()
    units = whole_units(session, longest)
    if units is None:
        return False
    return _reads_continue_each_other(reads, longest) and _time_agrees(session, reads, units)


def _length(read: RecordedCall) -> int:
    return len(read.values)


def whole_units(session: SessionCalls, values: tuple[str, ...]) -> list[Unit] | None:
    """Split what a read saw into whole units, each once; None if that is not possible."""
    units: list[Unit] = []
    find, place, end = session.written.get, 0, len(values)
    while place < end:
        unit = find(values[place])
        if unit is None or unit.failed:
            return None
        size = len(unit.values)
        if size > 1 and values[place : place + size] != unit.values:
            return None
        units.append(unit)
        place += size
    return units if len(set(units)) == len(units) else None


def _reads_continue_each_other(reads: list[RecordedCall], longest: tuple[str, ...]) -> bool:
    prefix: tuple[str, ...] = ()
    for read in reads:
        if len(read.values) != len(prefix):
            prefix = longest[: len(read.values)]
        if read.values != prefix:
            return False
    return True


def _time_agrees(session: SessionCalls, reads: list[RecordedCall], units: list[Unit]) -> bool:
    """Whether real time allows this order: unit, the reads that end with it, next unit. None may end before an earlier
    one began."""
    latest = -1  # the latest begin of everything earlier in the order
    reads_from = 0
    length = 0
    for unit in (None, *units):
        if unit is not None:
            if unit.end < latest:
                return False
            latest = max(latest, unit.begin)
            length += len(unit.values)
        began = latest
        while reads_from < len(reads) and len(reads[reads_from].values) <= length:
            read = reads[reads_from]
            # A length between two units is a torn read.
            if read.end < latest or len(read.values) != length:
                return False
            began = max(began, read.begin)
            reads_from += 1
        latest = began
    if len(units) == len(session.units):
        return True
    seen = set(units)
    return all(unit.end >= latest for unit in session.units if unit not in seen)
