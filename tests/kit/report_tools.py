"""A report with something of everything, and text that would harm whoever shows it carelessly."""

from __future__ import annotations

from everturn.testing.history import judge
from everturn.testing.results import ClauseResult, Event, RunReport, Status, Violation, count_statuses
from tests.kit.history_tools import call, history

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202eback\x00'\"><img src=x onerror=alert(2)>"

HISTORIES: dict[str, list[Event]] = {
    "lost": history(call("w", "append", (1, 3), "a b"), call("r", "read", (4, 5), "")),
    "duplicate": history(
        call("w", "append", (1, 3), "a b", end="info", key="k"),
        call("w", "append", (4, 6), "a b", key="k"),
        call("r", "read", (7, 8), "a b a b"),
    ),
    "phantom": history(call("w", "append", (1, 3), "a", end="fail"), call("r", "read", (4, 5), "a")),
    "torn": history(
        call("w", "append", (1, 5), "a b"), call("v", "append", (2, 6), "x y"), call("r", "read", (7, 8), "a x b y")
    ),
    "misordered": history(
        call("w", "append", (1, 2), "a"), call("w", "append", (3, 4), "b"), call("r", "read", (5, 6), "b a")
    ),
    "stale": history(call("w", "append", (1, 2), "a"), call("r", "read", (3, 4), ""), call("r", "read", (5, 6), "a")),
    "non_prefix": history(
        call("w", "append", (1, 20), "a"),
        call("v", "append", (2, 20), "b"),
        call("r", "read", (3, 6), "a"),
        call("q", "read", (4, 7), "b"),
    ),
    "resurrected": history(
        call("w", "append", (1, 2), "a"), call("c", "clear", (3, 4)), call("r", "read", (5, 6), "a")
    ),
    "killed": history(call("w", "append", (1, None), "a b"), call("r", "read", (4, 5), "a")),
}


def violations() -> dict[str, Violation]:
    return {name: judge(events).violations[0] for name, events in HISTORIES.items()}


def clause(status: Status, number: int = 1, *found: Violation, **fields: str) -> ClauseResult:
    told = {"promise": "What is promised.", "incident": "What it would have caused.", "replay": "everturn check x"}
    if status == "broken":
        told["remedy"] = "What to change."
    return ClauseResult(f"sequential.{status}-{number}", "sequential", status, violations=found, **(told | fields))


def report(*clauses: ClauseResult, **fields: object) -> RunReport:
    given: dict[str, object] = {
        "contract_version": "1",
        "target": "my.store:factory",
        "seed": 42,
        "started": "2026-11-15T22:00:00+00:00",
        "seconds": 12.3,
        "versions": {"everturn": "0.1.0"},
        "counts": count_statuses(clauses),
    }
    return RunReport(clauses=clauses, **(given | fields))  # type: ignore[arg-type]  # as above


def everything() -> RunReport:
    """Every status, every kind, and hostile text wherever a store or a user can put it."""
    found = violations()
    hostile = Violation("differs", f"{HOSTILE}\n  {HOSTILE}", (), HOSTILE, (HOSTILE,))
    long = Violation(
        "phantom",
        HOSTILE,
        tuple(history(call(HOSTILE, "append", (1, 2), HOSTILE), call("r", "read", (3, 4), "z" * 5000))),
        values=("z" * 5000, HOSTILE),
        shown_by=3,
    )
    return report(
        clause("broken", 1, *found.values()),
        clause(
            "broken",
            2,
            hostile,
            long,
            promise=HOSTILE,
            incident=HOSTILE,
            replay=HOSTILE,
            detail=HOSTILE,
            remedy=HOSTILE,
        ),
        clause("untested", detail="only 3 acknowledged operations"),
        clause("known", detail="in the ledger"),
        clause("holds"),
        clause("not_offered"),
        complaints=(HOSTILE,),
        target=HOSTILE,
    )
