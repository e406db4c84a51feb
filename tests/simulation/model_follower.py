"""The pure model as it follows a simulated world: it repeats what the servers applied, and knows the states there were.

The judge (judge.py) decides what may be applied and answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from everturn import InvalidInput, MemoryStoreError
from everturn.errors import CorruptEntry
from tests.model.model_store import Change, ModelStore, Refused, Session
from tests.simulation import planned, records
from tests.simulation.records import Finding, Record, Seen, Stored, message, named, placed, short
from tests.simulation.schedules import Op
from tests.simulation.states import FOREVER, States


class ModelFollower:
    """Follows one world. `clock` tells the store's time at a true moment, `steps` the moments at which it was set."""

    def __init__(
        self,
        ttl: float | None,
        now: Callable[[], float],
        clock: Callable[[float], float],
        steps: Callable[[float, float], list[float]],
    ) -> None:
        self._now = now
        self._clock = clock
        self._steps = steps
        self.model = ModelStore(lambda: clock(now()), ttl, count(1), count(1))
        self.findings: list[Finding] = []
        self.records: dict[int, Record] = {}
        self.early = self.late = 0.0  # seconds by which a session may expire before or behind its time
        self.relaxed_from = FOREVER  # true time from which a server's clock cannot be relied on
        self.misled: set[str] = set()  # hosts that began with a clock that was wrong
        self.attempts: dict[int, int] = {}  # of effects, that calls which end one were told to end
        self._numbers: dict[int, int] = {}  # the model's snapshots by the calls that took them
        self._shown: dict[int, list[tuple[str, ...]]] = {}  # what snapshots show; one may be taken in two lives
        self._after: dict[int, int] = {}  # where replaces were told to begin
        self._states = States(clock, steps)

    def find(self, kind: str, text: str, *hosts: str) -> None:
        """Tell of a finding. It is tolerated if one of the hosts that may be why began with a wrong clock."""
        self.findings.append(Finding(records.MISLED if self.misled & {*hosts} else kind, self._now(), text))

    def _late(self) -> float:
        """The seconds by which a session may expire too late: without end, once its clock was set back."""
        return self.late if self._now() < self.relaxed_from else FOREVER

    def _seen(self, name: str, begin: float, end: float) -> Iterator[Seen]:
        """The states of a session from one moment to another; without what had expired in all of that time."""
        return self._states.between(name, begin, end, early=self.early, late=self._late())

    def _repeat(self, op: Op, name: str, stored: Stored | None) -> None:
        """Do in the model what was done. Raises Refused."""
        model = self.model
        match op.kind:
            case "append":
                self._append(op, name)
            case "replace":
                entries = [message(value) for value in op.values]
                self._changed(model.append(name, entries, after=self._after[op.id]), op)
            case "snapshot":
                done = model.save_snapshot(name)
                self._numbers[op.id] = done.snapshot or 0
                self._shown.setdefault(op.id, []).append(Seen(0.0, model.sessions[name].state).values)
            case "rollback":
                self._changed(model.rollback_to_snapshot(name, self._numbers.get(op.of, 0)), op)
            case "delete_snapshot":
                model.delete_snapshot(name, self._numbers.get(op.of, 0))
            case "undo":
                self._changed(model.undo(name), op)
            case "clear":
                self._changed(model.clear(name), op)
            case "set_ttl":
                model.set_ttl(name, op.seconds)
            case "trim" | "fold":
                self._hide(op, name, stored)
            case "fork":
                self._fork(op, name, stored)
            case "erase":
                model.erase(name)
            case "begin":
                if not model.begin_effect(name, op.key or "", repeats=op.limit).changed:
                    self.find("begun twice", f"{named(op)} was applied; it was begun before, and has not failed")
                    raise Refused(InvalidInput)
            case "finish" | "fail":
                status = "finished" if op.kind == "finish" else "failed"
                model.end_effect(name, op.key or "", status, attempt=self.attempts.get(op.id, 0))
            case _:
                self.find("impossible", f"{named(op)} changed {name!r}")

    def _append(self, op: Op, name: str) -> None:
        entries = [message(value) for value in op.values]
        done = self.model.append(name, entries, key=op.key)
        if done.replayed:
            self.find("doubled", f"{named(op)} was applied, though the turn of its key is on the path already")
            self.model.append(name, entries)

    def _changed(self, done: Any, op: Op) -> None:
        if not done.changed:
            self.find("impossible", f"{named(op)} used a version, though there was nothing to do")

    def _hide(self, op: Op, name: str, stored: Stored | None) -> None:
        if stored is None:
            raise Refused(CorruptEntry)
        seen = list(self._seen(name, self.records[op.id].begin, self._now()))
        if wrong := planned.repeat(self.model, op, name, {seq for seq, _ in stored[2]}, seen):
            self.find(f"wrong {op.kind}", wrong)

    def _fork(self, op: Op, name: str, stored: Stored | None) -> None:
        if self.model.live(name) is not None or stored is None:
            raise Refused(MemoryStoreError)
        begin = self.records[op.id].begin
        states = [seen.state for seen in self._seen(op.session, begin, self._now()) if seen.state is not None]
        state = next((state for state in states if placed(state) == stored[2]), None)
        if state is None:
            self.find("wrong fork", f"{named(op)} shows {short(stored[2])}, which {op.session!r} did not in its time")
            raise Refused(MemoryStoreError)
        target = Session(next(self.model.lives), self.model.ttl, forked_from=op.session, state=state)
        target.last_seq = state.path[-1].seq if state.path else 0
        self.model.sessions[name] = target
        self.model._record(target, Change(1, "fork", (), None, None, None, state))

    def replaces(self, op: Op, after: int) -> None:
        """Take note of where a replace was told to begin."""
        self._after[op.id] = after
