"""Shrinks a violation to the few events that still show it when they are judged alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from everturn.testing.history.findings import FoundViolation
from everturn.testing.history.parse import RecordedCall
from everturn.testing.results import Event, ViolationKind

# Judging a few events is fast; judging them hundreds of times is not.
_CALLS = 150
_TRIES = 300

Kinds = Callable[[list[Event]], Iterable[ViolationKind]]


def shrink(finding: FoundViolation, nearby: list[RecordedCall], kinds: Kinds) -> list[RecordedCall]:
    """Find a few calls that show the violation when they are judged alone, in the order in which they began.

    Tries the calls that the violation names, then also `nearby` ones. Reads stay in, and so do calls that could excuse
    the violation, because a reader would ask about them.
    """
    named = finding.calls
    for calls in (named, sorted({*named, *nearby[-_CALLS:]}, key=lambda call: call.begin)):
        if finding.kind in kinds(project(calls, finding)):
            return _fewer(calls, finding, kinds)
    return named


def project(calls: list[RecordedCall], finding: FoundViolation) -> list[Event]:
    """Take the events of these calls. Reads keep only ids that these calls wrote, or that the violation is about."""
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


def _fewer(calls: list[RecordedCall], finding: FoundViolation, kinds: Kinds) -> list[RecordedCall]:
    tries = _TRIES
    for call in reversed(calls):
        if not _can_go(call, finding) or not tries:
            continue
        tries -= 1
        without = [other for other in calls if other is not call]
        if finding.kind in kinds(project(without, finding)):
            calls = without
    return calls


def _can_go(call: RecordedCall, finding: FoundViolation) -> bool:
    if call not in finding.calls:
        return True
    # A trim, clear or erase removes; it cannot have brought back what another one removed.
    return finding.kind == "resurrected" and call.f in {"trim", "clear", "erase"}
