"""The calls of a world as a history, for the checker that judges real runs, which is not told what was applied when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from everturn.testing.history import judge
from everturn.testing.results import Event
from tests.simulation.records import Record
from tests.simulation.schedules import Schedule

_NAMES = {"read_at": "read"}
# Its `replace` is of everything; sessions neither expire nor are copied; it has no leases and no effects.
_UNKNOWN_TO_IT = {"replace", "set_ttl", "fork", "fold", "lease", "renew", "release", "begin", "finish", "fail"}
_ENDS = {"ok": "ok", "not_written": "fail", "refused": "fail"}
_MOST = 12  # calls that change: beyond that it may have to try too many orders


def fits(schedule: Schedule) -> bool:
    """Whether the checker knows all that happens in a schedule."""
    kinds = {op.kind for op in schedule.ops}
    loses = any(fault.lose for fault in schedule.faults if fault.kind in ("restart", "failover"))
    changes = sum(op.kind not in ("read", "read_at", "compact", "context") for op in schedule.ops)
    return schedule.ttl is None and not loses and not kinds & _UNKNOWN_TO_IT and changes <= _MOST


def violations(records: Iterable[Record]) -> list[str]:
    """Violations that the checker finds in the calls of a world."""
    verdict = judge(list(_events(records)))
    return [f"{violation.kind}: {violation.story}" for violation in verdict.violations]


def _events(records: Iterable[Record]) -> Iterator[Event]:
    for record in records:
        op = record.op
        if op.kind in ("compact", "delete_snapshot", "context"):
            continue
        about = f"snapshot of call {op.of}" if op.kind in ("rollback", "read_at") else None
        yield Event(
            "invoke",
            record.host,
            op.id,
            _nanoseconds(record.begin),
            op.session,
            _NAMES.get(op.kind, op.kind),  # type: ignore[arg-type]
            op.values or None,
            op.key,
            about,
            op.limit if op.kind == "trim" else None,
        )
        if record.end is None:
            continue
        end = _ENDS.get(record.outcome, "info")
        yield Event(
            end,  # type: ignore[arg-type]
            record.host,
            op.id,
            _nanoseconds(record.end),
            values=record.result if op.kind in ("read", "read_at") and end == "ok" else None,
            snapshot=f"snapshot of call {op.id}" if op.kind == "snapshot" and end == "ok" else None,
            error=None if record.error is None else str(record.error),
        )


def _nanoseconds(moment: float) -> int:
    return round(moment * 1e9)
