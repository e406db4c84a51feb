"""Sentences that the terminal and the HTML page share: the outcome of a run, the meaning of each status."""

from __future__ import annotations

import re
from collections.abc import Iterable

from everturn.testing.results import LAYERS, ClauseResult, Layer, RunReport, Status

MEANING: dict[Status, str] = {
    "holds": "holds",
    "broken": "broken",
    "untested": "untested",
    "known": "known",
    "not_offered": "not offered",
}
# In the order in which a reader must know them.
SHOWN_BY_HISTORIES = frozenset(
    {"lost", "duplicate", "phantom", "torn", "misordered", "stale", "non_prefix", "resurrected"}
)
WORST_FIRST: tuple[Status, ...] = ("broken", "untested", "known", "holds", "not_offered")


def by_layer(report: RunReport) -> dict[Layer, list[ClauseResult]]:
    """Group clauses by layer, in the order of the contract; layers without clauses are left out."""
    found: dict[Layer, list[ClauseResult]] = {}
    for layer in LAYERS:
        clauses = [clause for clause in report.clauses if clause.layer == layer]
        if clauses:
            found[layer] = clauses
    return found


def to_show(report: RunReport) -> list[ClauseResult]:
    """List the clauses that need attention, broken ones first."""
    ranks: dict[Status, int] = {"broken": 0, "untested": 1}
    return sorted((clause for clause in report.clauses if clause.status in ranks), key=lambda c: ranks[c.status])


def by_cause(report: RunReport) -> list[tuple[ClauseResult, list[ClauseResult]]]:
    """Group the clauses to show by cause, so that a cause is shown once: (first clause, the others)."""
    found: dict[str, tuple[ClauseResult, list[ClauseResult]]] = {}
    for clause in to_show(report):
        cause = _cause(clause) or clause.id
        if cause in found:
            found[cause][1].append(clause)
        else:
            found[cause] = (clause, [])
    return list(found.values())


def _cause(clause: ClauseResult) -> str | None:
    """Find the cause of a failure, without names and numbers. None if it has a story of its own.

    Of errors that a store raised, the text is the cause. Of violations that a history shows, the kind and the changes
    that took part: turns lost beside other appends are one cause, in whichever clause they were lost.
    """
    if clause.status == "untested":
        return f"untested: {re.sub(r'[0-9]+', '0', clause.detail)}" if clause.detail else None
    if not clause.violations:
        return None
    violation = clause.violations[0]
    _, raised, text = violation.story.partition(" raised ")
    if raised and violation.kind not in SHOWN_BY_HISTORIES:
        return f"raised: {re.sub(r'[0-9]+', '0', text)}"
    changes = {event.f for event in violation.events if event.type == "invoke" and event.f != "read"}
    if violation.kind in SHOWN_BY_HISTORIES and changes:
        return f"{violation.kind}: {', '.join(sorted(changes))}"
    return None


def not_offered(report: RunReport) -> dict[str, list[ClauseResult]]:
    """Group the clauses that were not offered by what they need; the most frequent need first.

    Without those that are for stores of another shape: nobody adds a shape to be tested more.
    """
    found: dict[str, list[ClauseResult]] = {}
    for clause in report.clauses:
        if clause.status == "not_offered":
            for need in clause.detail.removeprefix("not offered: ").removeprefix("needs ").split("; and "):
                if not need.startswith("the shape of "):
                    found.setdefault(need, []).append(clause)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def outcome(report: RunReport) -> str:
    """Sum up the run in one sentence."""
    counts = {status: sum(clause.status == status for clause in report.clauses) for status in MEANING}
    offered = len(report.clauses) - counts["not_offered"]
    if report.exit_code == 0:
        known = f" but {counts['known']} known not to" if counts["known"] else ""
        return f"{_clauses(offered)} offered, all hold{known}." if offered else "Nothing was offered."
    parts = [f"{counts[status]} {MEANING[status]}" for status in ("broken", "untested") if counts[status]]
    parts += [f"{len(report.complaints)} complaints about the run"] if report.complaints else []
    return f"{_clauses(offered)} offered: {', '.join(parts)}."


def counted(report: RunReport, statuses: Iterable[Status]) -> str:
    """Count the clauses of these statuses, those that have any: `71 hold, 2 broken, 61 not offered`."""
    counts = [(status, sum(clause.status == status for clause in report.clauses)) for status in statuses]
    return ", ".join(
        f"{count} {'hold' if status == 'holds' and count != 1 else MEANING[status]}"
        for status, count in counts
        if count
    )


def facts(report: RunReport) -> str:
    """List version, seed, duration and start on one line."""
    seed = [] if report.seed is None else [f"seed {report.seed}"]
    versions = [f"{name} {version}" for name, version in report.versions.items()]
    parts = [f"contract {report.contract_version}", *seed, f"{report.seconds:.1f} s", *versions, report.started]
    return " · ".join(parts)


def _clauses(count: int) -> str:
    return f"{count} clause" if count == 1 else f"{count} clauses"
