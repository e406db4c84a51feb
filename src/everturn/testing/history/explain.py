"""Explains a violation in plain words: a headline, then one line for each call."""

from __future__ import annotations

from collections.abc import Iterable

from everturn.testing.history.findings import FoundViolation
from everturn.testing.history.parse import RecordedCall

_FEW = 6  # messages that are listed in full


def explain(finding: FoundViolation, calls: list[RecordedCall]) -> str:
    """Write the story: one or two sentences, then a line for each of these calls, with times since the first."""
    start = calls[0].begin if calls else 0
    width = max((len(call.invoke.worker) for call in calls), default=0)
    lines = [f"  {_ms(call.begin - start):>12} {call.invoke.worker:<{width}}  {_did(call, finding)}" for call in calls]
    return "\n".join([_headline(finding), *lines])


def _headline(finding: FoundViolation) -> str:
    it = _list(finding.values)
    match finding.kind, finding.cause:
        case "lost", _:
            seen = "A read had it before." if finding.before else "No read ever had it."
            return f"{it}: acknowledged, and a later read does not have it. {seen}{_no_excuse(finding)}"
        case "stale", "unacked":
            return f"{it}: one read has it, a later read does not, and then it is there again.{_no_excuse(finding)}"
        case "stale", _ if not _acknowledged_before(finding):
            return f"{it}: a read does not have it, a later one does, and no order of the calls explains that."
        case "stale", _:
            return (
                f"{it}: acknowledged before a read began that does not have it. A later read does.{_no_excuse(finding)}"
            )
        case "duplicate", _:
            keyed = " and its retries with one key" if len(finding.wrote) > 1 else ""
            return f"{it}: written by one call{keyed}, and there more than once."
        case "phantom", "failed":
            return f"{it}: the store said that it was not written, and a read has it."
        case "phantom", "future":
            return f"{it}: a read has it that ended before it was written."
        case "phantom", "elsewhere":
            return f"{it}: a read has it that was written to another session, {finding.wrote[0].invoke.session!r}."
        case "phantom", _:
            return f"{it}: a read has it, and nobody wrote it."
        case "torn", "part":
            return f"{it}: written as one turn, and a read has only a part of it."
        case "torn", _:
            return f"{it}: written as one turn, and a read has something else in the middle of it."
        case "misordered", "within":
            return f"{it}: written as one turn, and a read has it in another order."
        case "misordered", "cycle":
            return f"{it}: reads have them in different orders."
        case "misordered", _:
            return f"{it}: a read has them in this order, and the second was there before the first began."
        case "resurrected", "erased":
            return "A rollback to a snapshot that was erased was acknowledged."
        case "resurrected", _:
            return f"{it}: taken away, and back again."
        case "non_prefix", "unacked":
            return f"{it}: a read had it, a later one does not, and nothing was taken away between them."
        case "non_prefix", "snapshot":
            return f"{it}: a snapshot does not hold what the session held when it was taken."
        case "non_prefix", "unexplained":
            return "No order of the calls explains what a read saw."
        case _:
            return f"{it}: two reads go on differently. Nothing was taken away, so one must continue the other."


def _acknowledged_before(finding: FoundViolation) -> bool:
    """Whether it was acknowledged when the read began. If not, other reads show that it was there."""
    return finding.read is not None and any(
        call.outcome == "ok" and call.end < finding.read.begin for call in finding.wrote
    )


def _no_excuse(finding: FoundViolation) -> str:
    names = sorted({call.f for call in finding.took if call.destructive})
    return f" No order of the {' or '.join(names)} beside it explains that." if names else ""


def _did(call: RecordedCall, finding: FoundViolation) -> str:
    what: list[str] = [call.f]
    if call.f in {"append", "replace"}:
        what.append(_list(call.values))
    if call.invoke.key:
        what.append(f"with key {_short(call.invoke.key)}")
    if call.snapshot:
        what.append(f"{'as' if call.f == 'snapshot' else 'of' if call.f == 'read' else 'to'} {_short(call.snapshot)}")
    if call.invoke.limit is not None:
        what.append(f"to {call.invoke.limit}")
    return f"{' '.join(what)}: {_saw(call, finding.values) if call.f == 'read' else _ended(call)}"


def _ended(call: RecordedCall) -> str:
    if call.completion is None:
        return "never heard of again"
    took = _ms(call.completion.at - call.begin)
    error = f" ({_short(call.completion.error)})" if call.completion.error else ""
    match call.outcome:
        case "ok":
            return f"ok after {took}"
        case "fail":
            return f"told after {took} that it was not written{error}"
        case _:
            return f"raised after {took}{error}, may have happened or not"


def _saw(read: RecordedCall, values: tuple[str, ...]) -> str:
    """Describe the result of a read: everything if it is short, otherwise the places of these ids."""
    seen = read.values
    if len(seen) <= _FEW:
        return f"saw {', '.join(map(_short, seen)) or 'nothing'}"
    places: dict[str, list[int]] = {}
    wanted = set(values)
    for place, value in enumerate(seen, 1):
        if value in wanted:
            places.setdefault(value, []).append(place)
    at = [f"{_short(value)} as number {' and '.join(map(str, places[value]))}" for value in values if value in places]
    absent = [value for value in dict.fromkeys(values) if value not in places]
    parts = [f"saw {len(seen)} messages"]
    if at:
        parts.append(f"with {', '.join(at[:_FEW])}")
    if absent:
        parts.append(f"without {_list(absent)}")
    return ", ".join(parts)


def _list(values: Iterable[str]) -> str:
    known = list(dict.fromkeys(values))
    if len(known) > _FEW:
        return f"{', '.join(map(_short, known[:3]))}, ... ({len(known)} messages)"
    return ", ".join(map(_short, known))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f} ms"
