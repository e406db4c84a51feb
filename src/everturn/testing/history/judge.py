"""Judges a history. Pure: events in, violations out; no clock, no disk, no randomness.

For each session: fast_accept.py says whether it is in order, in one pass. If not, read_anomalies.py looks inside each
read, read_rules.py and order.py between reads, and linearize.py, with classify.py, where something was taken away.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everturn.testing.history.classify import find_unexplained
from everturn.testing.history.explain import explain
from everturn.testing.history.fast_accept import certainly_in_order
from everturn.testing.history.findings import EXPLAINED, Findings, FoundViolation
from everturn.testing.history.order import find_misordered
from everturn.testing.history.parse import RecordedCall, SessionCalls, Unit, pair, sessions
from everturn.testing.history.read_anomalies import read_views
from everturn.testing.history.read_rules import Blame, find_diverging_reads, find_missing
from everturn.testing.history.shrink import project, shrink, with_culprits
from everturn.testing.results import Event, Violation, ViolationKind


class Verdict(msgspec.Struct, frozen=True):
    """The result of judging a history. `counts` has every violation, `violations` the first few of each kind.

    `undecided` names the sessions in which too many calls overlapped to try every order. Violations found there are
    real, and there may be more.
    """

    violations: tuple[Violation, ...]
    counts: dict[ViolationKind, int]
    calls: int
    acknowledged: int  # changes that were
    reads: int  # that returned
    sessions: int
    undecided: tuple[str, ...] = ()


def judge(events: Iterable[Event]) -> Verdict:
    """Judge a history, in time linear in its calls and in the results of its reads. Raises BadHistory.

    Every violation is real: no order in which the calls could have taken effect explains it. For appends and reads
    the reverse holds too: without a violation there is such an order.
    """
    calls = pair(events)
    found = sessions(calls)
    counts: dict[ViolationKind, int] = {}
    explained: list[tuple[SessionCalls, FoundViolation]] = []
    undecided: list[str] = []
    for session in found.values():
        findings, decided = _find(found, session)
        if not decided:
            undecided.append(session.name)
        for kind, count in findings.counts.items():
            counts[kind] = counts.get(kind, 0) + count
        explained += ((session, finding) for finding in findings.explained)
    return Verdict(
        tuple(_violation(session, finding, calls) for session, finding in _first_of_each(explained)),
        counts,
        calls=len(calls),
        acknowledged=sum(call.outcome == "ok" and call.f != "read" for call in calls),
        reads=sum(len(session.reads) + len(session.past_reads) for session in found.values()),
        sessions=len(found),
        undecided=tuple(undecided),
    )


def _find(found: dict[str, SessionCalls], session: SessionCalls) -> tuple[Findings, bool]:
    """Find the violations of one session, and whether all of it could be decided."""
    findings = Findings()
    if certainly_in_order(session):
        return findings, True

    def elsewhere(value: str) -> Unit | None:
        return next((other.written[value] for other in found.values() if value in other.written), None)

    blame = Blame()
    views = read_views(session, session.reads, elsewhere, findings)
    past = read_views(session, session.past_reads, elsewhere, findings)
    find_missing(session, views, findings, blame)
    before = find_misordered(session, [*views, *past], findings, blame)
    views, past = blame.cleared(views), blame.cleared(past)
    decided = True
    if past or any(change.destructive for change in session.changes):
        decided = find_unexplained(session, views, past, before, findings, blame)
        if decided:
            return findings, True
    find_diverging_reads(session, views, findings)
    return findings, decided


def _kinds(events: list[Event]) -> set[ViolationKind]:
    found = sessions(pair(events))
    return {kind for session in found.values() for kind in _find(found, session)[0].counts}


def _first_of_each(explained: list[tuple[SessionCalls, FoundViolation]]) -> list[tuple[SessionCalls, FoundViolation]]:
    """Pick the first few of each kind in the whole history, in the order of time."""
    left: dict[ViolationKind, int] = {}
    kept = []
    for session, finding in sorted(explained, key=lambda pair: _shown(pair[1])):
        left[finding.kind] = left.get(finding.kind, EXPLAINED) - 1
        if left[finding.kind] >= 0:
            kept.append((session, finding))
    return kept


def _shown(finding: FoundViolation) -> int:
    return finding.read.end if finding.read else max((call.begin for call in finding.calls), default=0)


def _violation(session: SessionCalls, finding: FoundViolation, calls: list[RecordedCall]) -> Violation:
    end = _shown(finding)
    nearby = [call for call in calls if call.invoke.session == session.name and call.begin <= end]
    shown = with_culprits(finding, shrink(finding, nearby, _kinds), nearby, _kinds)
    events = tuple(project(shown, finding))
    ends = [place for place, event in enumerate(events) if finding.read and _ends(finding.read, event)]
    return Violation(
        finding.kind,
        explain(finding, shown),
        events,
        session.name,
        finding.values,
        shown_by=ends[0] if ends else None,
    )


def _ends(call: RecordedCall, event: Event) -> bool:
    return event.type != "invoke" and (event.worker, event.op) == (call.invoke.worker, call.invoke.op)
