"""Shrinks a violation to the few events that still show it when they are judged alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from everturn.testing.history.findings import FoundViolation
from everturn.testing.history.parse import NEVER, RecordedCall
from everturn.testing.results import Event, ViolationKind

# Judging a few events is fast; judging them hundreds of times is not.
_CALLS = 150
_TRIES = 300
_CULPRITS = 2  # calls that are shown beside the one that they harmed
_DONE_BY_OTHERS = frozenset({"lost", "stale", "torn", "resurrected", "duplicate"})
_CHANGES = frozenset({"append", "replace", "trim", "clear", "rollback", "undo", "erase"})

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


def with_culprits(
    finding: FoundViolation, calls: list[RecordedCall], nearby: list[RecordedCall], kinds: Kinds
) -> list[RecordedCall]:
    """Add the calls that can have done it, because a reader would ask who it was: changes that were under way together
    with the one that was harmed, or, if there are none, the few that came right after it. They are only added if the
    violation still shows."""
    harmed = [call for call in (finding.took if finding.kind == "resurrected" else finding.wrote) if call in calls]
    if finding.kind not in _DONE_BY_OTHERS or not harmed:
        return calls
    changes = {"append", "replace", "rollback"} if finding.kind == "resurrected" else _CHANGES
    others = sorted(
        (call for call in nearby if call.f in changes and call not in calls),
        key=lambda call: (call.begin, call.end, call.invoke.worker, call.invoke.op),
    )
    beside = [call for call in others if any(call.begin < one.end and one.begin < call.end for one in harmed)]
    end = finding.read.begin if finding.read else NEVER
    later = [call for call in others if harmed[-1].end <= call.begin < end]
    culprits = beside[:_CULPRITS] or (later if len(later) <= _CULPRITS else [])
    for culprit in culprits:
        more = sorted([*calls, culprit], key=lambda call: (call.begin, call.end))
        if finding.kind in kinds(project(more, finding)):
            calls = more
    return calls


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
