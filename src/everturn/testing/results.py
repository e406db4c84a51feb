"""Results of the contract kit as frozen values: events, violations, clause results, the report.

history/ judges, kit/runner.py runs, report/ draws. The JSON report is an encoded `RunReport`; docs/report-format.md
describes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

__all__ = [
    "CONTRACT_VERSION",
    "CONTRACT_VERSIONS",
    "FUNCTIONS",
    "LAYERS",
    "REPORT_FORMAT",
    "STATUSES",
    "ClauseResult",
    "Event",
    "EventType",
    "Function",
    "Layer",
    "RunReport",
    "Status",
    "Violation",
    "ViolationKind",
    "count_statuses",
]

EventType: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Function: TypeAlias = Literal["append", "read", "replace", "trim", "clear", "snapshot", "rollback", "undo", "erase"]
ViolationKind: TypeAlias = Literal[
    "lost",  # acknowledged, and a later read does not have it
    "duplicate",  # one call, two copies
    "phantom",  # read, and never written: no call, a call that failed for sure, or one that came later
    "torn",  # part of a turn, or a turn with another's message inside it
    "misordered",  # read in an order in which it cannot have been written
    "stale",  # a read lacks what was there before it began, and a later read has it
    "non_prefix",  # two reads of which neither continues the other, and nothing was taken away between them
    "resurrected",  # cleared, trimmed, rolled back or erased, and back again
    "differs",  # an answer is not what the calls before it lead to; see `story`
    "accepted",  # a call was accepted that must be refused
    "raised",  # the store raised where it must work
    "died",  # the store took its process along
    "unopened",  # the store could not be opened, or not closed
]
Status: TypeAlias = Literal["holds", "broken", "not_offered", "untested", "known"]
Layer: TypeAlias = Literal[
    "sequential", "concurrency", "persistence", "edge", "faults", "crash", "compaction", "resume", "history"
]

FUNCTIONS: tuple[Function, ...] = get_args(Function)
STATUSES: tuple[Status, ...] = get_args(Status)
LAYERS: tuple[Layer, ...] = get_args(Layer)

CONTRACT_VERSIONS = ("1", "2")
CONTRACT_VERSION = CONTRACT_VERSIONS[-1]  # its clauses: contract.clauses_of
REPORT_FORMAT = 2  # 1 had "pass" and "fail" for "holds" and "broken"


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a history: a call begins (invoke) or ends (ok, fail, info). Fields: everturn.testing.history."""

    type: EventType
    worker: str
    op: int
    at: int
    session: str = ""
    f: Function | Literal[""] = ""
    values: tuple[str, ...] | None = None
    key: str | None = None
    snapshot: str | None = None
    limit: int | None = None
    error: str | None = None


class Violation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One broken promise. `events` are the few that show it; `values` are the ids it is about.

    `shown_by` is the index, in `events`, of the end of the read that shows it.
    """

    kind: ViolationKind
    story: str
    events: tuple[Event, ...] = ()
    session: str = ""
    values: tuple[str, ...] = ()
    shown_by: int | None = None


class ClauseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one clause. `replay` is the command that runs it again; `incident` is the harm it could do.

    `remedy` says what to change in a store that breaks it.
    """

    id: str
    layer: Layer
    status: Status
    detail: str = ""
    violations: tuple[Violation, ...] = ()
    promise: str = ""
    incident: str = ""
    replay: str = ""
    seconds: float = 0.0
    remedy: str = ""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. `started` is ISO 8601 in UTC; `complaints` are about the run itself (a ledger entry that passes,
    a budget that ran out) and break it like a failed clause does."""

    contract_version: str
    target: str
    seed: int | None
    clauses: tuple[ClauseResult, ...]
    started: str
    seconds: float
    versions: dict[str, str]
    complaints: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()  # advice for the author of the target; they break nothing
    counts: dict[Status, int] = msgspec.field(default_factory=dict)
    report_format: int = REPORT_FORMAT

    @property
    def exit_code(self) -> Literal[0, 1]:
        """0 when every offered clause holds, 1 when something is broken or untested. (2, could not run, has none.)"""
        broken = self.complaints or any(clause.status in {"broken", "untested"} for clause in self.clauses)
        return 1 if broken else 0


def count_statuses(clauses: Iterable[ClauseResult]) -> dict[Status, int]:
    """Count the clauses of each status; every status is a key, also with 0."""
    counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
    for clause in clauses:
        counts[clause.status] += 1
    return counts
