"""Tools for the tests of the judge: histories written by hand, a correct store that is simulated, and an oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from everturn.testing.history.parse import NEVER, RecordedCall, SessionCalls
from everturn.testing.results import Event

SESSION = "s"

# --- by hand ---------------------------------------------------------------------------------------------------


def call(
    worker: str,
    f: Any,
    times: tuple[int, int | None],
    values: str = "",
    *,
    end: Any = "ok",
    session: str = SESSION,
    snapshot: str | None = None,
    **fields: Any,
) -> list[Event]:
    """One call as its two events, or as one when it never ended. A read's `values` are what it saw."""
    begin, finish = times
    ids = tuple(values.split())
    reads, takes = f == "read", f == "snapshot"
    invoke = Event(
        "invoke",
        worker,
        begin,  # the moment it begins is as good a number as any
        begin,
        session=session,
        f=f,
        values=ids if f in {"append", "replace"} else None,
        snapshot=None if takes else snapshot,
        **fields,
    )
    if finish is None:
        return [invoke]
    seen = ids if reads and end == "ok" else None
    return [invoke, Event(end, worker, begin, finish, values=seen, snapshot=snapshot if takes else None)]


def history(*calls: list[Event]) -> list[Event]:
    return [event for events in calls for event in events]


# --- simulated -------------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """A session that does everything right: a path of units, a floor, snapshots, undo."""

    path: tuple[tuple[str, ...], ...] = ()
    hidden: int = 0  # messages of the path that are not visible
    keys: frozenset[str] = frozenset()  # of units on the path
    snapshots: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    undoable: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    cuts_units: bool = False  # a foreign trim, that counts messages only

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(value for unit in self.path for value in unit)

    def read(self) -> tuple[str, ...]:
        return self.messages[self.hidden :]

    def append(self, values: tuple[str, ...], key: str | None) -> None:
        if key is None or key not in self.keys:
            self.path += (values,)
            self.keys |= {key} if key else set()

    def replace(self, values: tuple[str, ...]) -> None:
        self._remember("replace")
        self.path, self.hidden, self.keys = ((values,) if values else ()), 0, frozenset()

    def clear(self) -> None:
        if self.read():
            self._remember("clear")
            self.hidden = len(self.messages)

    def plan_trim(self, limit: int) -> tuple[Any, ...]:
        """Find the new floor. Returns it with the state it was planned on."""
        kept = 0
        if self.cuts_units or len(self.read()) <= limit:
            kept = min(limit, len(self.read()))
        else:
            for unit in reversed(self.path):
                if kept and kept + len(unit) > limit:
                    break
                kept += len(unit)
        return (max(self.hidden, len(self.messages) - kept), *self._state())

    def trim(self, limit: int, plan: tuple[Any, ...] | None = None) -> None:
        """Trim as planned; what was appended since stays. A head or a floor that moved needs a new plan."""
        floor, path, hidden, _ = plan or self.plan_trim(limit)
        if self.path[: len(path)] != path or self.hidden != hidden:
            floor = self.plan_trim(limit)[0]
        if floor != self.hidden:
            self._remember("trim")
            self.hidden = floor

    def snapshot(self, name: str) -> None:
        self.snapshots[name] = self._state()

    def rollback(self, name: str) -> None:
        self._remember("rollback")
        self.path, self.hidden, self.keys = self.snapshots[name]

    def erase(self) -> None:
        self.path, self.hidden, self.keys = (), 0, frozenset()
        self.snapshots.clear()
        self.undoable.clear()

    def undo(self) -> None:
        if not self.undoable:
            return
        f, state = self.undoable.pop()
        if f in {"trim", "clear"}:
            self.hidden = state[1]
        else:
            self.path, self.hidden, self.keys = state

    def _state(self) -> tuple[Any, ...]:
        return (self.path, self.hidden, self.keys)

    def _remember(self, f: str) -> None:
        self.undoable.append((f, self._state()))


@dataclass
class Plan:
    """Weights of what workers do, and of how their calls end."""

    workers: int = 4
    calls: int = 40
    weights: dict[str, int] = field(default_factory=lambda: {"append": 6, "read": 3})
    sizes: Sequence[int] = (1, 2, 3)
    limits: Sequence[int] = (1, 2, 5)
    raises: float = 0.0  # an exception after which the outcome is unknown
    refuses: float = 0.0  # an error that says not_written
    kills: float = 0.0  # the worker is gone; a new one takes its place
    keyed: float = 0.0  # appends that carry a key and are tried again when they raise
    late: float = 0.0  # of calls that raised or were killed: take effect at any time, long afterwards
    cuts_units: bool = False
    plans_trims: bool = False  # as everturn does: look, think, then move the floor


class _Doing(NamedTuple):
    number: int
    f: str
    values: tuple[str, ...]
    key: str | None
    name: str | None
    limit: int | None


class Simulation:
    """Workers call one correct `Memory`, each call taking effect at one moment between its two events."""

    def __init__(self, plan: Plan, chance: Random) -> None:
        self._plan = plan
        self._chance = chance
        self._memory = Memory(cuts_units=plan.cuts_units)
        self._events: list[Event] = []
        self._clock = 0
        self._count = 0
        self._names: list[str] = []
        self._late: list[_Doing] = []

    def run(self) -> list[Event]:
        running = [self._worker(number) for number in range(self._plan.workers)]
        while running:
            self._clock += self._chance.randint(0, 2)  # now and then two things happen at the same tick
            if self._late and self._chance.random() < 0.05:
                self._effect(self._late.pop(self._chance.randrange(len(self._late))))
            worker = self._chance.choice(running)
            if next(worker, None) is None:
                running.remove(worker)
        return self._events

    def _worker(self, number: int) -> Iterator[bool]:
        lives, retry = 0, None
        while self._count < self._plan.calls:
            self._count += 1
            doing = self._choose(retry)
            retry = None
            worker = f"w{number}.{lives}"
            outcome = self._outcome(doing.f)
            self._clock += 1  # clocks of one worker never stand still
            self._events.append(
                Event(
                    "invoke",
                    worker,
                    doing.number,
                    self._clock,
                    session=SESSION,
                    f=doing.f,  # type: ignore[arg-type]  # it comes from the weights
                    values=doing.values if doing.f in {"append", "replace"} else None,
                    key=doing.key,
                    snapshot=doing.name if doing.f == "rollback" else None,
                    limit=doing.limit,
                )
            )
            yield True
            seen, changed, trim = None, False, None
            if doing.f == "trim" and self._plan.plans_trims:
                trim = self._memory.plan_trim(doing.limit or 0)
                yield True
            if outcome == "ok" and doing.f == "rollback" and doing.name not in self._memory.snapshots:
                outcome = "fail"  # somebody has erased it meanwhile
            if outcome == "ok" or (outcome in {"info", "kill"} and self._chance.random() < 0.5):
                seen, changed = self._effect(doing, trim), True
                yield True
            elif outcome != "fail" and self._chance.random() < self._plan.late:
                self._late.append(doing)
            if outcome == "kill":
                lives += 1
                continue
            if outcome == "ok" and doing.f == "snapshot" and changed and doing.name:
                self._names.append(doing.name)
            if outcome == "info" and doing.key:
                retry = doing
            self._events.append(
                Event(
                    outcome,  # type: ignore[arg-type]  # a kill has gone on
                    worker,
                    doing.number,
                    self._clock,
                    values=seen if outcome == "ok" else None,
                    snapshot=doing.name if doing.f == "snapshot" and outcome == "ok" else None,
                )
            )
            yield True

    def _choose(self, retry: _Doing | None) -> _Doing:
        number = self._count
        if retry is not None:
            return retry._replace(number=number)
        chance, plan = self._chance, self._plan
        f = chance.choices(list(plan.weights), list(plan.weights.values()))[0]
        if f == "rollback" and not self._names:
            f = "snapshot"
        values: tuple[str, ...] = ()
        if f in {"append", "replace"}:
            values = tuple(f"m{number}.{place}" for place in range(chance.choice(plan.sizes)))
        key = f"k{number}" if f == "append" and chance.random() < plan.keyed else None
        name = chance.choice(self._names) if f == "rollback" else f"S{number}" if f == "snapshot" else None
        return _Doing(number, f, values, key, name, chance.choice(plan.limits) if f == "trim" else None)

    def _outcome(self, f: str) -> str:
        plan = self._plan
        weights = [plan.raises, plan.refuses, plan.kills, 1 - plan.raises - plan.refuses - plan.kills]
        return self._chance.choices(["info", "fail", "kill", "ok"], weights)[0]

    def _effect(self, doing: _Doing, trim: tuple[Any, ...] | None = None) -> tuple[str, ...] | None:
        memory = self._memory
        match doing.f:
            case "append":
                memory.append(doing.values, doing.key)
            case "read":
                return memory.read()
            case "replace":
                memory.replace(doing.values)
            case "trim":
                memory.trim(doing.limit or 0, trim)
            case "snapshot":
                memory.snapshot(doing.name or "")
            case "rollback":
                if doing.name in memory.snapshots:
                    memory.rollback(doing.name)
            case "clear":
                memory.clear()
            case "erase":
                memory.erase()
                self._names.clear()
            case "undo":
                memory.undo()
        return None


def simulate(plan: Plan, seed: int) -> list[Event]:
    return Simulation(plan, Random(seed)).run()


# --- the oracle ------------------------------------------------------------------------------------------------


class _World(NamedTuple):
    path: tuple[tuple[str, ...], ...] = ()
    hidden: int = 0
    keys: frozenset[str] = frozenset()
    snapshots: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(value for unit in self.path for value in unit)


def explainable(session: SessionCalls, calls: Sequence[RecordedCall]) -> bool:
    """Whether some order explains every call, by trying them all. Only for a handful of calls; knows no undo.

    It is written from the rules alone, and shares no code with the judge.
    """
    names = {call.snapshot for call in calls if call.f == "snapshot"}
    todo = [call for call in calls if call.outcome != "fail" and (call.f != "read" or call.outcome == "ok")]
    acknowledged = {value: unit.end for unit in session.units for value in unit.values}
    failed: set[tuple[_World, frozenset[RecordedCall]]] = set()

    def search(world: _World, left: frozenset[RecordedCall]) -> bool:
        if all(call.end == NEVER for call in left):
            return True
        if (world, left) in failed:
            return False
        for call in left:
            if any(other.end < call.begin for other in left):
                continue
            if any(search(after, left - {call}) for after in _outcomes(world, call, names, acknowledged)):
                return True
        failed.add((world, left))
        return False

    return search(_World(), frozenset(todo))


def _outcomes(world: _World, call: RecordedCall, names: set[str | None], acknowledged: dict[str, int]) -> list[_World]:
    invoke = call.invoke
    seen = world.messages[world.hidden :]
    match call.f:
        case "append":
            if not call.values or (invoke.key and invoke.key in world.keys):
                return [world]
            keys = world.keys | ({invoke.key} if invoke.key else set())
            return [world._replace(path=(*world.path, call.values), keys=keys)]
        case "read":
            if invoke.snapshot is not None:
                kept = dict(world.snapshots).get(invoke.snapshot)
                if invoke.snapshot not in names:
                    return [world]
                if kept is None:
                    return []
                seen = world._replace(path=kept[0], hidden=kept[1]).messages[kept[1] :]
            return [world] if seen == call.values else []
        case "clear":
            return [world._replace(hidden=len(world.messages))]
        case "trim":
            limit = invoke.limit
            if not seen or (limit is not None and len(seen) <= limit):
                return [world]
            counts = {min(len(world.path[-1]), len(seen))}  # the last unit may always stay, and be all that does
            for count in range(1, len(seen) + 1):
                # The limit is about what was there for sure when the trim began.
                settled = [value for value in seen[-count:] if acknowledged.get(value, NEVER) < call.begin]
                if limit is None or len(settled) <= limit:
                    counts.add(count)
            return [world._replace(hidden=len(world.messages) - count) for count in counts]
        case "replace":
            return [world._replace(path=(call.values,) if call.values else (), hidden=0, keys=frozenset())]
        case "snapshot":
            kept_now = (world.path, world.hidden, world.keys)
            return [world._replace(snapshots=tuple({**dict(world.snapshots), call.snapshot: kept_now}.items()))]
        case "rollback":
            kept = dict(world.snapshots).get(invoke.snapshot)
            return [] if kept is None else [world._replace(path=kept[0], hidden=kept[1], keys=kept[2])]
        case "erase":
            return [_World()]
    raise AssertionError(call.f)
