"""Judges a saved history and makes a report: one clause for each kind of violation. It reads a clock."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version

from everturn.testing.history.judge import Verdict, judge
from everturn.testing.history.record import load
from everturn.testing.results import CONTRACT_VERSION, ClauseResult, RunReport, Status, ViolationKind, count_statuses

# With fewer calls that returned, a history says nothing.
_ENOUGH = 20

# The promise that each kind breaks, and the incident it looks like in production.
_PROMISES: dict[ViolationKind, tuple[str, str]] = {
    "lost": (
        "What was acknowledged is there in every later read.",
        "The bot asks for the order number right after the user gave it.",
    ),
    "duplicate": ("One call stores one copy, whatever was tried again.", "The bot answers the same question twice."),
    "phantom": (
        "A read has only what was written, to this session, before it.",
        "A user reads a stranger's conversation, or an answer to a call that was refused.",
    ),
    "torn": (
        "A turn is there as a whole, or not at all, and nothing stands inside it.",
        "A tool call without its result: the model's API refuses the conversation from then on.",
    ),
    "misordered": (
        "Messages stand in the order in which they were written, and in the same order for everyone.",
        "The answer comes before its question, and the model answers the wrong one.",
    ),
    "stale": (
        "A read has everything that was acknowledged, or read, before it began.",
        "The next worker answers from the conversation as it was a moment ago.",
    ),
    "non_prefix": (
        "While nothing is taken away, each read continues the one before it.",
        "Two workers see two different conversations of the same user.",
    ),
    "resurrected": (
        "What was cleared, trimmed, rolled back or erased stays away until it is brought back.",
        "A user asked to be forgotten, and the bot brings it up again.",
    ),
}


def judge_file(path: str | os.PathLike[str]) -> RunReport:
    """Judge a history file, or a folder of them. Raises BadHistory if it is none, OSError if it cannot be read."""
    started, clock = datetime.now(UTC), time.perf_counter()
    verdict = judge(load(path))
    replay = f"everturn check --judge {os.fspath(path)}"
    clauses = tuple(_clause(kind, verdict, replay) for kind in _PROMISES)
    return RunReport(
        contract_version=CONTRACT_VERSION,
        target=os.fspath(path),
        seed=None,
        clauses=clauses,
        started=started.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - clock,
        versions={"everturn": version("everturn"), "python": platform.python_version()},
        counts=count_statuses(clauses),
    )


def _clause(kind: ViolationKind, verdict: Verdict, replay: str) -> ClauseResult:
    promise, incident = _PROMISES[kind]
    violations = tuple(violation for violation in verdict.violations if violation.kind == kind)
    status, detail = _status(kind, verdict)
    return ClauseResult(f"history.{kind}", "history", status, detail, violations, promise, incident, replay)


def _status(kind: ViolationKind, verdict: Verdict) -> tuple[Status, str]:
    seen = f"{verdict.acknowledged} acknowledged changes and {verdict.reads} reads in {verdict.sessions} sessions"
    if count := verdict.counts.get(kind, 0):
        return "broken", f"{count} {'time' if count == 1 else 'times'} in {seen}"
    if verdict.acknowledged + verdict.reads < _ENOUGH or not verdict.reads:
        return "untested", f"only {seen}: too little to tell"
    if not verdict.undecided:
        return "holds", seen
    open_ones = (
        f"in {len(verdict.undecided)} of {verdict.sessions} sessions too many calls overlapped to try all orders"
    )
    return ("untested" if len(verdict.undecided) == verdict.sessions else "holds"), f"{seen}; {open_ones}"
