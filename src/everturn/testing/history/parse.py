"""Parses a history: events are paired into calls, sorted by session, and grouped into the units that appends write.

It refuses a file that is no history, and judges nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal

import msgspec

from everturn.testing.history.record import BadHistory
from everturn.testing.results import FUNCTIONS, Event, Function

NEVER = 1 << 63  # later than any clock: the end of a call whose end was not seen

_FUNCTIONS = frozenset(FUNCTIONS)
# Calls that may remove, or bring back, appended messages.
_DESTRUCTIVE = frozenset({"replace", "trim", "clear", "rollback", "undo", "erase"})


class RecordedCall(msgspec.Struct, eq=False, gc=False):
    """One call. It took effect, if at all, at one moment between `begin` and `end`.

    `end` is NEVER for a call that may still take effect: one that raised, or whose worker was killed.
    """

    f: Function
    begin: int
    end: int
    outcome: Literal["ok", "fail", "info"]
    values: tuple[str, ...]
    invoke: Event
    completion: Event | None = None

    @property
    def destructive(self) -> bool:
        return self.f in _DESTRUCTIVE

    @property
    def snapshot(self) -> str | None:
        """The snapshot that the call made, or was given."""
        made = self.completion.snapshot if self.completion else None
        return made if self.f == "snapshot" else self.invoke.snapshot

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.invoke,) if self.completion is None else (self.invoke, self.completion)


class Unit(msgspec.Struct, eq=False, gc=False):
    """The ids of one append: all or nothing, side by side. Retries with one key are calls of one unit.

    It was written, if at all, between `begin` and `end`: `end` is the first acknowledgement, or NEVER.
    """

    values: tuple[str, ...]
    call: RecordedCall
    begin: int
    end: int
    failed: bool
    retries: tuple[RecordedCall, ...] = ()

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        return (self.call, *self.retries)

    @property
    def acknowledged(self) -> bool:
        return self.end != NEVER


class SessionCalls(msgspec.Struct, eq=False):
    """Calls on one session, by kind, each list in the order in which the calls began."""

    name: str
    units: list[Unit]
    reads: list[RecordedCall]  # those that returned, of the present state
    past_reads: list[RecordedCall]  # those that returned, of a snapshot
    changes: list[RecordedCall]  # all but appends and reads, without those that failed for sure
    written: dict[str, Unit]  # by each of its ids

    @property
    def unordered(self) -> bool:
        """Whether a key may write its unit a second time; such a unit has no single place in the order."""
        forgets = {"rollback", "replace", "undo", "erase"}
        return any(change.f in forgets for change in self.changes) and any(unit.retries for unit in self.units)


def pair(events: Iterable[Event]) -> list[RecordedCall]:
    """Pair each invoke with its end, in the order given. Raises BadHistory if they do not fit together."""
    calls: list[RecordedCall] = []
    pending: dict[tuple[str, int], RecordedCall] = {}
    for event in events:
        name = (event.worker, event.op)
        if event.type == "invoke":
            f = event.f
            if f not in _FUNCTIONS:
                raise BadHistory(f"{_name(event)}: f is {f!r}, not one of {', '.join(FUNCTIONS)}")
            if name in pending:
                raise BadHistory(f"{_name(event)}: begins twice; number the calls of a worker 1, 2, 3, ...")
            call = pending[name] = RecordedCall(f, event.at, NEVER, "info", event.values or (), event)
            calls.append(call)
        else:
            begun = pending.get(name)
            if begun is None:
                raise BadHistory(f"{_name(event)}: ends ({event.type}) and has not begun; record the invoke first")
            _end(begun, event)
    return calls


def sessions(calls: Iterable[RecordedCall]) -> dict[str, SessionCalls]:
    """Group calls by session. Raises BadHistory if an id was written by two calls that share no key."""
    found: dict[str, SessionCalls] = {}
    for call in sorted(calls, key=attrgetter("begin")):
        name = call.invoke.session
        session = found.get(name)
        if session is None:
            session = found[name] = SessionCalls(name, [], [], [], [], {})
        f = call.f
        if f == "append":
            _write(session, call)
        elif f == "read":
            if call.outcome == "ok":
                (session.reads if call.invoke.snapshot is None else session.past_reads).append(call)
        else:
            if f == "replace":
                _write(session, call)
            if call.outcome != "fail":
                session.changes.append(call)
    for session in found.values():  # a unit whose first call failed begins with a later one
        session.units.sort(key=attrgetter("begin"))
    return found


def _end(call: RecordedCall, event: Event) -> None:
    if call.completion is not None:
        raise BadHistory(f"{_name(event)}: ends twice")
    if event.at < call.begin:
        raise BadHistory(f"{_name(event)}: ends before it begins; all workers must use one monotonic clock")
    call.completion = event
    if event.type == "info":
        return
    call.outcome = event.type  # type: ignore[assignment]  # an invoke does not come here
    call.end = event.at
    if call.f == "read" and event.type == "ok":
        if event.values is None:
            raise BadHistory(f"{_name(event)}: a read that is ok needs `values`: what it returned, [] for nothing")
        call.values = event.values


def _write(session: SessionCalls, call: RecordedCall) -> None:
    values, written = call.values, session.written
    if not values:
        return
    outcome = call.outcome
    unit = written.get(values[0])
    if unit is None:
        unit = Unit(values, call, call.begin, call.end if outcome == "ok" else NEVER, outcome == "fail")
        for value in values:
            if value in written:
                raise BadHistory(f"{_name(call.invoke)}: {value!r} is written twice; ids must be unique")
            written[value] = unit
        session.units.append(unit)
        return
    if unit.values != values or not call.invoke.key or unit.call.invoke.key != call.invoke.key:
        raise BadHistory(f"{_name(call.invoke)}: {values[0]!r} is written twice; only a retry with the same key may")
    unit.retries += (call,)
    if unit.failed and outcome != "fail":
        unit.failed, unit.begin = False, call.begin
    if outcome == "ok":
        unit.end = min(unit.end, call.end)


def _name(event: Event) -> str:
    return f"worker {event.worker!r}, call {event.op}"
