"""Names the violation when no linearization explains a call, in sessions with trims, clears or rollbacks."""

from __future__ import annotations

from functools import partial

from everturn.testing.history.findings import EXPLAINED, Findings, FoundViolation
from everturn.testing.history.linearize import LinearizationSearch
from everturn.testing.history.order import Before
from everturn.testing.history.parse import RecordedCall, SessionCalls, Unit
from everturn.testing.history.read_anomalies import ReadView
from everturn.testing.history.read_rules import Blame, last_seen, missing_kind, missing_violation
from everturn.testing.history.session_model import UNKNOWN, ModelState, SessionModel

_STATES = 200  # at most so many of the tried states are compared with what a read saw


def find_unexplained(
    session: SessionCalls, views: list[ReadView], past: list[ReadView], before: Before, findings: Findings, blame: Blame
) -> bool:
    """Add a violation for each call that no order explains. Returns False if the search gave up: more may be wrong."""
    classifier = _Classifier(session, views, before, findings)
    for exact in (True, False):
        search = LinearizationSearch(session, views, past, before, blame, exact=exact)
        for count, call in enumerate(search.stuck(), 1):
            if classifier.classify(search, call):
                search.accept(call)
            else:
                search.skip(call)
            if count == EXPLAINED:  # the rest likely follows from these
                break
        if not search.gave_up:
            return True
    return False


class _Classifier:
    def __init__(self, session: SessionCalls, views: list[ReadView], before: Before, findings: Findings) -> None:
        self._session = session
        self._sights = views
        self._before = before
        self._findings = findings
        self._last_seen = last_seen(views)

    def classify(self, search: LinearizationSearch, call: RecordedCall) -> bool:
        """Add the violation. Returns whether to go on from what the call shows, or else as if it had not been made."""
        if call.f == "append":
            self._append_too_early(search, call)
            return True
        if call.f == "rollback":
            took = self._changes_between(call.begin, call)
            self._findings.add(
                "resurrected", call, lambda: FoundViolation("resurrected", (), took=took, cause="erased")
            )
            return True
        if call.invoke.snapshot is not None:
            self._snapshot_differs(search, call)
            return False
        return self._read_differs(search, call)

    def _append_too_early(self, search: LinearizationSearch, call: RecordedCall) -> None:
        unit = search.model.unit_of[call]
        earlier = search.blocked_by(call)
        if earlier is None:
            return
        read = self._before[unit][earlier]
        self._findings.add(
            "misordered",
            unit,
            lambda: FoundViolation(
                "misordered", (*earlier.values, *unit.values), read=read, wrote=(*unit.calls, *earlier.calls)
            ),
        )

    def _snapshot_differs(self, search: LinearizationSearch, read: RecordedCall) -> None:
        name = read.snapshot or ""
        taken = tuple(change for change in self._session.changes if change.f == "snapshot" and change.snapshot == name)
        kept = [state for config in search.tried for state, _ in search.model.kept(config.snapshots, name)]
        missing, extra = _difference(search.model, kept, search.units(read))
        units = missing or extra
        self._findings.add(
            "non_prefix",
            read,
            lambda: FoundViolation(
                "non_prefix",
                tuple(value for unit in units for value in unit.values),
                read=read,
                wrote=tuple(call for unit in units for call in unit.calls),
                took=taken,
                cause="snapshot",
            ),
        )

    def _read_differs(self, search: LinearizationSearch, read: RecordedCall) -> bool:
        units = search.units(read)
        missing, extra = _difference(search.model, [config.state for config in search.tried], units)
        for unit in missing:
            kind = missing_kind(unit, read, self._last_seen)
            took = self._changes_between(unit.begin, read)
            self._findings.add(kind, unit, partial(missing_violation, kind, unit, read, self._sights, took))
        for unit in extra:
            self._findings.add("resurrected", unit, partial(self._extra_violation, unit, read))
        if not missing and not extra:
            self._findings.add("non_prefix", read, lambda: self._unexplained_violation(units, read))
        # Do not go on from a state that only this read shows.
        differs = any(self._last_seen.get(unit, -1) > read.end for unit in missing)
        stays = not extra or any(self._last_seen.get(unit, -1) > read.end for unit in extra)
        return stays and not differs

    def _extra_violation(self, unit: Unit, read: RecordedCall) -> FoundViolation:
        without = [
            view.read
            for view in self._sights
            if unit.end < view.read.begin and view.read.end < read.begin and unit not in view.units
        ]
        return FoundViolation(
            "resurrected",
            unit.values,
            read=read,
            wrote=unit.calls,
            took=self._changes_between(unit.begin, read),
            before=tuple(without[-1:]),
        )

    def _unexplained_violation(self, units: tuple[Unit, ...], read: RecordedCall) -> FoundViolation:
        last = units[-1:]
        return FoundViolation(
            "non_prefix",
            tuple(value for unit in last for value in unit.values),
            read=read,
            wrote=tuple(call for unit in last for call in unit.calls),
            took=self._changes_between(max((unit.begin for unit in last), default=0), read),
            cause="unexplained",
        )

    def _changes_between(self, begin: int, read: RecordedCall) -> tuple[RecordedCall, ...]:
        """List the destructive calls between a moment and a read, and the snapshots that they used."""
        changes = self._session.changes
        took = [change for change in changes if change.destructive and change.end > begin and change.begin < read.end]
        names = {change.snapshot for change in took if change.f == "rollback"}
        taken = [change for change in changes if change.f == "snapshot" and change.snapshot in names]
        return (*taken, *took)


def _difference(
    model: SessionModel, states: list[ModelState], units: tuple[Unit, ...]
) -> tuple[list[Unit], list[Unit]]:
    """Compare units with the most similar state. Returns the units that are missing, and those that are too many."""
    seen = set(units)
    nearest: tuple[list[Unit], list[Unit]] | None = None
    for state in states[:_STATES]:
        must = state.node.above(state.hi)
        if (unseen := model.unseen_in(state)) is not None:
            must.append(unseen)
        may = set(state.node.above(state.lo))
        missing = [unit for unit in must if unit not in seen and unit is not UNKNOWN]
        extra = [unit for unit in units if unit not in may] if UNKNOWN not in may else []
        # Of two that are equally near, take the one with a missing unit: a loss is easier to understand.
        if nearest is None or (len(missing + extra), len(extra)) < (len(nearest[0] + nearest[1]), len(nearest[1])):
            nearest = missing, extra
    return nearest or ([], [])
