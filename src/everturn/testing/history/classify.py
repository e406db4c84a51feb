"""Owns what it is called when no order of the calls explains one of them, around trims, clears and rollbacks."""

from __future__ import annotations

from functools import partial

from everturn.testing.history.findings import TOLD, Finding, Findings
from everturn.testing.history.linearize import Search
from everturn.testing.history.order import Before
from everturn.testing.history.parse import Call, Session, Unit
from everturn.testing.history.read_anomalies import Sight
from everturn.testing.history.read_rules import Blame, last_seen, missing_kind, tell_missing
from everturn.testing.history.session_model import WILD, Model, State

_STATES = 200  # of the presents that were tried, how many are compared with what a read saw


def judge_around(
    session: Session, sights: list[Sight], past: list[Sight], before: Before, findings: Findings, blame: Blame
) -> bool:
    """Note what no order of the calls explains. False if the search gave up somewhere: then more may be wrong."""
    naming = _Naming(session, sights, before, findings)
    for exact in (True, False):
        search = Search(session, sights, past, before, blame, exact=exact)
        for count, call in enumerate(search.stuck(), 1):
            if naming.name(search, call):
                search.accept(call)
            else:
                search.skip(call)
            if count == TOLD:  # what follows is likely an echo
                break
        if not search.gave_up:
            return True
    return False


class _Naming:
    def __init__(self, session: Session, sights: list[Sight], before: Before, findings: Findings) -> None:
        self._session = session
        self._sights = sights
        self._before = before
        self._findings = findings
        self._last_seen = last_seen(sights)

    def name(self, search: Search, call: Call) -> bool:
        """Note what is wrong with the call; whether to go on from what it says (or as if it had not been made)."""
        if call.f == "append":
            self._too_early(search, call)
            return True
        if call.f == "rollback":
            took = self._around(call.begin, call)
            self._findings.add("resurrected", call, lambda: Finding("resurrected", (), took=took, cause="erased"))
            return True
        if call.invoke.snapshot is not None:
            self._not_as_kept(search, call)
            return False
        return self._not_as_left(search, call)

    def _too_early(self, search: Search, call: Call) -> None:
        unit = search.model.unit_of[call]
        earlier = search.blocked_by(call)
        if earlier is None:
            return
        read = self._before[unit][earlier]
        self._findings.add(
            "misordered",
            unit,
            lambda: Finding(
                "misordered", (*earlier.values, *unit.values), read=read, wrote=(*unit.calls, *earlier.calls)
            ),
        )

    def _not_as_kept(self, search: Search, read: Call) -> None:
        name = read.snapshot or ""
        taken = tuple(change for change in self._session.changes if change.f == "snapshot" and change.snapshot == name)
        kept = [state for config in search.tried for state, _ in search.model.kept(config.snapshots, name)]
        missing, extra = _difference(search.model, kept, search.units(read))
        units = missing or extra
        self._findings.add(
            "non_prefix",
            read,
            lambda: Finding(
                "non_prefix",
                tuple(value for unit in units for value in unit.values),
                read=read,
                wrote=tuple(call for unit in units for call in unit.calls),
                took=taken,
                cause="snapshot",
            ),
        )

    def _not_as_left(self, search: Search, read: Call) -> bool:
        units = search.units(read)
        missing, extra = _difference(search.model, [config.state for config in search.tried], units)
        for unit in missing:
            kind = missing_kind(unit, read, self._last_seen)
            took = self._around(unit.begin, read)
            self._findings.add(kind, unit, partial(tell_missing, kind, unit, read, self._sights, took))
        for unit in extra:
            self._findings.add("resurrected", unit, partial(self._tell_extra, unit, read))
        if not missing and not extra:
            self._findings.add("non_prefix", read, lambda: self._tell_unexplained(units, read))
        # What only this read saw, or did not see, is no place to go on from.
        differs = any(self._last_seen.get(unit, -1) > read.end for unit in missing)
        stays = not extra or any(self._last_seen.get(unit, -1) > read.end for unit in extra)
        return stays and not differs

    def _tell_extra(self, unit: Unit, read: Call) -> Finding:
        without = [
            sight.read
            for sight in self._sights
            if unit.end < sight.read.begin and sight.read.end < read.begin and unit not in sight.units
        ]
        return Finding(
            "resurrected",
            unit.values,
            read=read,
            wrote=unit.calls,
            took=self._around(unit.begin, read),
            before=tuple(without[-1:]),
        )

    def _tell_unexplained(self, units: tuple[Unit, ...], read: Call) -> Finding:
        last = units[-1:]
        return Finding(
            "non_prefix",
            tuple(value for unit in last for value in unit.values),
            read=read,
            wrote=tuple(call for unit in last for call in unit.calls),
            took=self._around(max((unit.begin for unit in last), default=0), read),
            cause="unexplained",
        )

    def _around(self, begin: int, read: Call) -> tuple[Call, ...]:
        """What was taken away or brought back between a moment and a read, and the snapshots that were used."""
        changes = self._session.changes
        took = [change for change in changes if change.destructive and change.end > begin and change.begin < read.end]
        names = {change.snapshot for change in took if change.f == "rollback"}
        taken = [change for change in changes if change.f == "snapshot" and change.snapshot in names]
        return (*taken, *took)


def _difference(model: Model, states: list[State], units: tuple[Unit, ...]) -> tuple[list[Unit], list[Unit]]:
    """What these units lack, and what they have too much, compared with the state that is most like them."""
    seen = set(units)
    nearest: tuple[list[Unit], list[Unit]] | None = None
    for state in states[:_STATES]:
        must = state.node.above(state.hi)
        if (unseen := model.unseen_in(state)) is not None:
            must.append(unseen)
        may = set(state.node.above(state.lo))
        missing = [unit for unit in must if unit not in seen and unit is not WILD]
        extra = [unit for unit in units if unit not in may] if WILD not in may else []
        # Of two that are as near, the one that lacks something: a loss is the simpler story.
        if nearest is None or (len(missing + extra), len(extra)) < (len(nearest[0] + nearest[1]), len(nearest[1])):
            nearest = missing, extra
    return nearest or ([], [])
