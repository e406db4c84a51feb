"""Owns the events of a violation: the few that still show it when they are judged alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from everturn.testing.history.findings import Finding
from everturn.testing.history.parse import Call
from everturn.testing.results import Event, ViolationKind

# Judging a few events is quick, judging them again and again is not.
_CALLS = 150
_TRIES = 300

Kinds = Callable[[list[Event]], Iterable[ViolationKind]]


def shrink(finding: Finding, around: list[Call], kinds: Kinds) -> list[Call]:
    """The fewest calls found that show the finding when they are judged alone, in the order in which they began.

    Tried with the calls the finding names, then also with those `around` it. What readers saw stays in, and so do
    the calls that could excuse the violation: nobody should have to ask about them.
    """
    named = finding.calls
    for calls in (named, sorted({*named, *around[-_CALLS:]}, key=lambda call: call.begin)):
        if finding.kind in kinds(project(calls, finding)):
            return _fewer(calls, finding, kinds)
    return named


def project(calls: list[Call], finding: Finding) -> list[Event]:
    """The events of these calls alone: reads have only what these calls wrote, or what the finding is about."""
    wrote = {value for call in calls for value in call.values if call.f in {"append", "replace"}}
    wrote.update(finding.foreign)
    events = [
        event
        if call.f != "read" or event.values is None
        else msgspec.structs.replace(event, values=tuple(value for value in event.values if value in wrote))
        for call in calls
        for event in call.events
    ]
    return sorted(events, key=lambda event: (event.at, event.type != "invoke"))


def _fewer(calls: list[Call], finding: Finding, kinds: Kinds) -> list[Call]:
    tries = _TRIES
    for call in reversed(calls):
        if not _can_go(call, finding) or not tries:
            continue
        tries -= 1
        without = [other for other in calls if other is not call]
        if finding.kind in kinds(project(without, finding)):
            calls = without
    return calls


def _can_go(call: Call, finding: Finding) -> bool:
    if call not in finding.calls:
        return True
    # What was taken away by one is not brought back by another of these.
    return finding.kind == "resurrected" and call.f in {"trim", "clear", "erase"}
