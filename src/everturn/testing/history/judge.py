"""Owns the verdict over a history. Pure: events in, violations out; no clock, no disk, no chance.

Which rule looks at what is said in the modules it calls, from the quick look to the search.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everturn.testing.history.classify import judge_around
from everturn.testing.history.explain import tell
from everturn.testing.history.fast_accept import certainly_in_order
from everturn.testing.history.findings import TOLD, Finding, Findings
from everturn.testing.history.order import find_misordered
from everturn.testing.history.parse import Call, Session, Unit, pair, sessions
from everturn.testing.history.read_anomalies import look
from everturn.testing.history.read_rules import Blame, find_forks, find_missing
from everturn.testing.history.shrink import project, shrink
from everturn.testing.results import Event, Violation, ViolationKind


class Verdict(msgspec.Struct, frozen=True):
    """What a history shows. `counts` has every violation, `violations` the first few of each kind, told in full.

    `undecided` names the sessions in which too many calls overlapped to try every order: what was found there
    stands, and more may be wrong.
    """

    violations: tuple[Violation, ...]
    counts: dict[ViolationKind, int]
    calls: int
    acknowledged: int  # changes that were
    reads: int  # that returned
    sessions: int
    undecided: tuple[str, ...] = ()


def judge(events: Iterable[Event]) -> Verdict:
    """Judge a history, in time linear in its calls and in what its reads saw. Raises BadHistory.

    Every violation is one: no order in which the calls could have taken effect explains it. For appends and reads
    the reverse holds, too: without a violation there is such an order.
    """
    calls = pair(events)
    found = sessions(calls)
    counts: dict[ViolationKind, int] = {}
    told: list[tuple[Session, Finding]] = []
    undecided: list[str] = []
    for session in found.values():
        findings, decided = _find(found, session)
        if not decided:
            undecided.append(session.name)
        for kind, count in findings.counts.items():
            counts[kind] = counts.get(kind, 0) + count
        told += ((session, finding) for finding in findings.told)
    return Verdict(
        tuple(_violation(session, finding, calls) for session, finding in _first_of_each(told)),
        counts,
        calls=len(calls),
        acknowledged=sum(call.outcome == "ok" and call.f != "read" for call in calls),
        reads=sum(len(session.reads) + len(session.past_reads) for session in found.values()),
        sessions=len(found),
        undecided=tuple(undecided),
    )


def _find(found: dict[str, Session], session: Session) -> tuple[Findings, bool]:
    """What is wrong in one session of a history, and whether all of it could be decided."""
    findings = Findings()
    if certainly_in_order(session):
        return findings, True

    def elsewhere(value: str) -> Unit | None:
        return next((other.written[value] for other in found.values() if value in other.written), None)

    blame = Blame()
    sights = look(session, session.reads, elsewhere, findings)
    past = look(session, session.past_reads, elsewhere, findings)
    find_missing(session, sights, findings, blame)
    before = find_misordered(session, [*sights, *past], findings, blame)
    sights, past = blame.cleared(sights), blame.cleared(past)
    decided = True
    if past or any(change.destructive for change in session.changes):
        decided = judge_around(session, sights, past, before, findings, blame)
        if decided:
            return findings, True
    find_forks(session, sights, findings)
    return findings, decided


def _kinds(events: list[Event]) -> set[ViolationKind]:
    found = sessions(pair(events))
    return {kind for session in found.values() for kind in _find(found, session)[0].counts}


def _first_of_each(told: list[tuple[Session, Finding]]) -> list[tuple[Session, Finding]]:
    """The first few of each kind in the whole history, in the order of time."""
    left: dict[ViolationKind, int] = {}
    kept = []
    for session, finding in sorted(told, key=lambda pair: _shown(pair[1])):
        left[finding.kind] = left.get(finding.kind, TOLD) - 1
        if left[finding.kind] >= 0:
            kept.append((session, finding))
    return kept


def _shown(finding: Finding) -> int:
    return finding.read.end if finding.read else max((call.begin for call in finding.calls), default=0)


def _violation(session: Session, finding: Finding, calls: list[Call]) -> Violation:
    end = _shown(finding)
    around = [call for call in calls if call.invoke.session == session.name and call.begin <= end]
    shown = shrink(finding, around, _kinds)
    events = tuple(project(shown, finding))
    ends = [place for place, event in enumerate(events) if finding.read and _ends(finding.read, event)]
    return Violation(
        finding.kind,
        tell(finding, shown),
        events,
        session.name,
        finding.values,
        shown_by=ends[0] if ends else None,
    )


def _ends(call: Call, event: Event) -> bool:
    return event.type != "invoke" and (event.worker, event.op) == (call.invoke.worker, call.invoke.op)
