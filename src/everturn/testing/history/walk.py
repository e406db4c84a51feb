"""Owns the short walk: whether a session in which things were taken away is certainly in order. Says yes, or nothing.

Where no two calls overlap there is one order, and it is walked once. Where a few do, every order of these few is tried
before going on. A call of which nobody knows whether it happened, a retry, an undo, or many calls at once: all that is
left to the search, which costs ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TypeAlias

from everturn.testing.history.fast_accept import whole_units
from everturn.testing.history.parse import NEVER, Call, Session, Unit
from everturn.testing.history.session_model import Node, State, after_trim

_TOGETHER = 10  # calls that overlap, of which every order is tried
_TRIES = 500  # at it
_PRESENTS = 8  # that may be left afterwards

# What is possible now: a state, and what each snapshot keeps. Those that are the same are one object.
Kept: TypeAlias = dict[str, State]
Present: TypeAlias = tuple[State, Kept]


class _Unsure(Exception):
    """The search must decide."""


def certainly_explained(session: Session) -> bool:
    """True only if one order of all calls explains every read."""
    try:
        walk = _Walk(session)
        return all(walk.take(calls) for calls in walk.meetings())
    except _Unsure:
        return False


class _Walk:
    def __init__(self, session: Session) -> None:
        self._root = Node()
        self._written = session.written
        self._units: dict[Call, tuple[Unit, ...]] = {}  # of each read, what it saw; of each append, what it writes
        for read in (*session.reads, *session.past_reads):
            units = whole_units(session, read.values)
            if units is None:
                raise _Unsure
            self._units[read] = tuple(units)
        seen = {unit for units in self._units.values() for unit in units}
        for unit in session.units:
            if unit.retries:
                raise _Unsure
            # An append that nobody saw, not even its caller, need not have happened.
            if not unit.failed and unit.call.f == "append" and (unit.acknowledged or unit in seen):
                self._units[unit.call] = (unit,)
        self._calls: list[Call] = [*self._units, *session.changes]
        if any(call.end == NEVER or call.f == "undo" for call in self._calls):
            raise _Unsure
        self._calls.sort(key=attrgetter("begin"))
        self._presents: list[Present] = [(State(self._root), {})]

    def meetings(self) -> Iterator[list[Call]]:
        """Calls that overlap, or follow from one another's overlapping; most of the time it is one call."""
        together: list[Call] = []
        end = -1
        for call in self._calls:
            if call.begin > end and together:
                yield together
                together = []
            together.append(call)
            end = max(end, call.end)
        if together:
            yield together

    def take(self, calls: list[Call]) -> bool:
        """Go on to what is possible after these calls; False if nothing is."""
        if len(calls) > 1 or len(self._presents) > 1:
            self._presents = self._after(calls)
            return bool(self._presents)
        after = self._apply(self._presents[0], calls[0], owned=True)
        if after is None:
            return False
        self._presents[0] = after
        return True

    def _after(self, calls: list[Call]) -> list[Present]:
        """Every present that some order of these calls leads to."""
        if len(calls) > _TOGETHER:
            raise _Unsure
        reached: list[Present] = []
        ways = [(present, tuple(calls)) for present in self._presents]
        tries = 0
        while ways:
            present, left = ways.pop()
            if not left:
                if not any(present[0] == state and present[1] is kept for state, kept in reached):
                    reached.append(present)
                continue
            tries += 1
            if tries > _TRIES or len(reached) > _PRESENTS:
                raise _Unsure
            first_end = min(call.end for call in left)
            for call in left:
                # Whatever had ended when a call began comes before it.
                after = self._apply(present, call, owned=False) if call.begin <= first_end else None
                if after is None:
                    continue
                rest = tuple(other for other in left if other is not call)
                if after is present:  # it only looked: nothing is gained by letting it wait
                    ways = [way for way in ways if way[0] is not present or way[1] is not left]
                    ways.append((after, rest))
                    break
                ways.append((after, rest))
        return reached

    def _apply(self, present: Present, call: Call, *, owned: bool) -> Present | None:
        """What a call makes of a present; None if it cannot happen there. Raises _Unsure.

        `owned`: nobody else has its snapshots, so they are changed in place.
        """
        state, kept = present
        match call.f:
            case "read" if call.invoke.snapshot is None:
                shown = _shown(state, self._units[call])
                return present if shown is state else None if shown is None else (shown, kept)
            case "read":
                found = self._kept(kept, call)
                shown = _shown(found, self._units[call])
                if shown is None or shown is found:
                    return None if shown is None else present
                return state, self._keep(kept, call, shown, owned=owned)
            case "append":
                return State(state.node.child(self._units[call][0]), state.lo, state.hi), kept
            case "clear":
                depth = state.node.depth
                return State(state.node, depth, depth), kept
            case "trim":
                return after_trim(state, call, 0), kept
            case "snapshot":
                return state, self._keep(kept, call, state, owned=owned)
            case "rollback":
                return self._kept(kept, call), kept
            case "replace":
                unit = self._written[call.values[0]] if call.values else None
                return State(self._root if unit is None else self._root.child(unit)), kept
            case "erase":
                return State(self._root), {}
            case _:
                raise _Unsure

    def _kept(self, kept: Kept, call: Call) -> State:
        found = kept.get(call.snapshot or "")
        if found is None:  # taken before the recording began, or erased
            raise _Unsure
        return found

    def _keep(self, kept: Kept, call: Call, state: State, *, owned: bool) -> Kept:
        if not owned:
            kept = dict(kept)
        kept[call.snapshot or ""] = state
        return kept


def _shown(state: State, units: tuple[Unit, ...]) -> State | None:
    """The state, with what was open in it decided, if a read can see these units in it."""
    node, lo, hi, _, _ = state
    floor = node.depth - len(units)
    if not lo <= floor <= hi or not node.shows(floor, units):
        return None
    return state if lo == hi else State(node, floor, floor)
