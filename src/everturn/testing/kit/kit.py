"""What a clause works with: places, instances of the target in processes of their own, turns to write, a history.

It gives the means; what is promised is in contract/, and what a broken promise looks like in a history, in history/.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NoReturn, TypeVar

from everturn.testing.history import judge, load
from everturn.testing.kit.clause import Broken, Clause, StoreRaised, Untested, said
from everturn.testing.kit.differences import difference
from everturn.testing.kit.environment import Run
from everturn.testing.kit.shared_store import Staff
from everturn.testing.results import Event, Violation, ViolationKind
from everturn.testing.shapes import Said, Seen
from everturn.testing.workers.controller import OrderFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.fresh_process import take_plainly
from everturn.testing.workers.messages import (
    Close,
    Do,
    Done,
    Lane,
    Limit,
    Open,
    Opened,
    Order,
    Outcome,
    Ready,
    Report,
    Step,
    Stop,
)

T = TypeVar("T", bound=Report)
ENOUGH = 20  # acknowledged operations, below which a history shows nothing
# For promises that nothing is lost: whether turns are whole, fresh and in order is promised by other clauses.
NO_LOSS: tuple[ViolationKind, ...] = ("lost", "duplicate", "phantom", "resurrected")
_SHOWN_EVENTS = 40


def succeeded(steps: Sequence[Step], outcomes: Sequence[Outcome]) -> list[Any]:
    """What the steps returned. Raises StoreRaised for the first that the store raised in."""
    for step, outcome in zip(steps, outcomes, strict=True):
        if outcome.fault is not None:
            raise StoreRaised(step, outcome.fault)
    return [outcome.value for outcome in outcomes]


class Instance:
    """One opened instance of the target, in a worker process. Its calls raise StoreRaised where the store raised.

    `name` is who it is in the history.
    """

    def __init__(self, kit: Kit, worker: WorkerProcess, slot: str, place: Path, name: str) -> None:
        self._kit = kit
        self.worker = worker
        self.slot = slot
        self.place = place
        self.name = name
        self.opened: Opened

    # --- operations --------------------------------------------------------------------------------------------------

    def append(self, session: str, messages: Sequence[Said], **options: Any) -> Any:
        return self.value(Step("append", session, (tuple(messages),), options))

    def read(self, session: str) -> list[Seen]:
        found: list[Seen] = self.value(Step("read", session))
        return found

    def trim(self, session: str, most: int) -> None:
        self.value(Step("trim", session, (most,)))

    def clear(self, session: str) -> None:
        self.value(Step("clear", session))

    def save_snapshot(self, session: str) -> Any:
        return self.value(Step("save_snapshot", session))

    def rollback(self, session: str, snapshot: Any) -> None:
        self.value(Step("rollback", session, (snapshot,)))

    def call(self, op: str, session: str | None = None, *args: Any, **options: Any) -> Any:
        """Any other operation of the shape."""
        return self.value(Step(op, session, args, options))

    def value(self, step: Step) -> Any:
        return self.values(step)[0]

    def take(self, step: Step) -> Outcome:
        """One step, whatever comes of it. Not for a read that is to show what was kept (`read` is): one that failed
        has seen nothing, and a history with nothing seen has no fault."""
        return self.run(step)[0]

    def take_unrecorded(self, step: Step) -> Outcome:
        """One step that is left out of the history: its content is no id there."""
        return self._kit.ask(self.worker, Do(self.slot, (Lane(self.name, (step,)),)), Done).lanes[0][0]

    def run(self, *steps: Step) -> tuple[Outcome, ...]:
        """Several steps in a row, without a word in between."""
        return self._kit.ask(self.worker, self.order(*steps), Done).lanes[0]

    def values(self, *steps: Step) -> list[Any]:
        """Several steps in a row, each of which must succeed."""
        return succeeded(steps, self.run(*steps))

    def order(self, *steps: Step, stop: Stop | None = None, start_at: float = 0.0, die: bool = False) -> Do:
        """The order to take these steps, for who wants to send it and go on."""
        lane = Lane(self.name, steps)
        return Do(self.slot, (lane,), record=self._kit.record(self.worker), stop=stop, start_at=start_at, die=die)

    # --- the process -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the instance as a program does that ends in good order. Does nothing the second time."""
        self._kit.close(self)

    def kill(self) -> None:
        """Kill its process, and all other instances in it, with -9."""
        self.worker.end()

    def limit(self, what: Any, value: int | None) -> None:
        self._kit.ask(self.worker, Limit(what, value), Ready)


class Kit:
    """Everything a clause needs. One for each clause of a run; closed when the clause ends."""

    def __init__(self, run: Run, clause: Clause, *, until: float, only: int | None = None) -> None:
        """`until` is when the clause should be done (monotonic); `only` the one point of a sweep to replay."""
        self.target = run
        self.clause = clause
        self.until = until
        self.only = only
        self.dice = Random(f"{run.seed}/{clause.id}")  # noqa: S311 - repeatable, not secret
        self.notes: list[str] = []  # what the report says beside the status
        self.replays: dict[str, str] = {}  # by session, what replays what happened in it
        self.folder = run.new_folder(f"history_{clause.id}")
        self._names: dict[str, int] = {}
        self._slots = count(1)
        self._instances: list[Instance] = []
        self._places: list[Path] = []
        self._workers: list[WorkerProcess] = []
        self._borrowed: list[Staff] = []

    def offers(self, what: str) -> bool:
        """Whether the target offers an operation or option."""
        return what in self.target.offered

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def quick(self) -> bool:
        return self.target.quick

    def time_left(self) -> bool:
        """Whether the clause may go on with what is not essential."""
        return time.monotonic() < self.until

    def ask(self, worker: WorkerProcess, order: Order, kind: type[T]) -> T:
        """Give an order and wait for its report, of this kind. Raises Untested when it does not come."""
        worker.send(order)
        return self.report(worker, kind)

    def report(self, worker: WorkerProcess, kind: type[T]) -> T:
        """Wait for a report of this kind. Raises Untested when it does not come."""
        report = self.any_report(worker)
        if not isinstance(report, kind):
            raise TypeError(f"expected {kind.__name__}, got {report!r}")
        return report

    def any_report(self, worker: WorkerProcess) -> Report:
        patience = self.target.patience()
        try:
            return worker.report(patience)
        except StillBusy:
            self.target.saw_hang()
            raise Untested(f"a call had not returned after {patience:.0f} s; it is at {worker.stack()}") from None

    # --- places and instances ----------------------------------------------------------------------------------------

    def place(self) -> Path:
        """A fresh directory, with a name that is unique and fit as key prefix or schema."""
        place = self.target.new_place()
        self._places.append(place)
        return place

    def open(
        self,
        name: str = "A",
        *,
        at: Path | None = None,
        beside: Instance | None = None,
        watched: bool = False,
        **options: Any,
    ) -> Instance:
        """Open the target: at the clause's place or another, in a process of its own or beside another instance.

        `options` are ttl, timeout or vfs. What is in memory by nature is opened once for each place.
        """
        place = at or (beside.place if beside else self._places[0] if self._places else self.place())
        if not self.target.offer.processes:
            first = next((one for one in self._instances if one.place == place), None)
            if first is not None:
                return self.adopt(first.worker, first.slot, place, name, first.opened)
        worker = beside.worker if beside else self.worker(watched=watched)
        slot = f"slot {next(self._slots)}"
        opened = self.ask(worker, self.opening(slot, place, **options), Opened)
        return self.adopt(worker, slot, place, name, opened)

    def borrow(self, name: str = "A", *, beside: Instance | None = None, watched: bool = False) -> Instance:
        """An instance at the place that clauses share, perhaps one that another clause has used.

        For a clause that only cares what becomes of sessions of its own. Otherwise as `open`.
        """
        if "session_id" in self.target.offer.options:  # an object for each session: those of all clauses would pile up
            return self.open(name, beside=beside, watched=watched)
        common = self.target.common
        if beside is not None:
            staff = next(one for one in self._borrowed if one.worker is beside.worker)
        elif self._borrowed and not self.target.offer.processes:
            staff = self._borrowed[0]
        else:
            staff = common.hire(watched=watched)
            self._borrowed.append(staff)
        slot = next((slot for slot in staff.slots if not self._uses(staff.worker, slot)), None)
        if slot is None:
            slot, order = common.opening()
            staff.slots[slot] = self.ask(staff.worker, order, Opened)
        return self.adopt(staff.worker, slot, common.place, name, staff.slots[slot])

    def _uses(self, worker: WorkerProcess, slot: str) -> bool:
        """Whether this clause has the instance already, and is to get another."""
        return self.target.offer.processes and any(one.worker is worker and one.slot == slot for one in self._instances)

    def open_or_none(self, name: str, *, at: Path) -> Instance | None:
        """Open the target where it may rightly refuse: None if it did."""
        try:
            return self.open(name, at=at)
        except OrderFailed:
            return None

    def opening(self, slot: str, place: Path, *, stop: Stop | None = None, **options: Any) -> Open:
        """The order to open an instance there."""
        return Open(slot, str(place), {**self.target.urls, **options}, stop)

    def adopt(self, worker: WorkerProcess, slot: str, place: Path, name: str, opened: Opened) -> Instance:
        """An instance that was opened by an order of the clause's own."""
        instance = Instance(self, worker, slot, place, self.unique_name(name))
        instance.opened = opened
        self._instances.append(instance)
        return instance

    def unique_name(self, name: str) -> str:
        """A caller has one name for all its life, and shares it with nobody."""
        self._names[name] = self._names.get(name, 0) + 1
        return name if self._names[name] == 1 else f"{name}{self._names[name]}"

    def worker(self, *, watched: bool = False) -> WorkerProcess:
        worker = self.target.nursery.worker(watched=watched)
        self._workers.append(worker)
        return worker

    def release(self, worker: WorkerProcess) -> None:
        """Give back a worker that holds nothing more of this clause."""
        self._workers.remove(worker)
        self.target.nursery.rest(worker)

    def close(self, instance: Instance) -> None:
        others = [one for one in self._instances if one is not instance]
        shared = any(one.slot == instance.slot and one.worker is instance.worker for one in others)
        if instance in self._instances and not shared and instance.worker.usable:
            self.ask(instance.worker, Close(instance.slot), Ready)
            for staff in self._borrowed:
                if staff.worker is instance.worker:
                    staff.slots.pop(instance.slot, None)
        self._instances = others

    def _is_borrowed(self, instance: Instance) -> bool:
        return any(staff.worker is instance.worker and instance.slot in staff.slots for staff in self._borrowed)

    def end(self, *, kept: bool) -> None:
        """Close everything; what a store does then is not judged. What was borrowed waits for the next clause, if the
        promise was `kept`."""
        for staff in self._borrowed:
            self.target.common.give_back(staff)
        if self._borrowed and not kept:
            self.target.common.retire()
        for instance in [one for one in self._instances if not self._is_borrowed(one)]:
            if not instance.worker.idle:
                # A clause that ended half-way left an order unanswered: the next report would be that order's.
                instance.worker.usable = False
                continue
            try:
                self.close(instance)
            except (Untested, OrderFailed, WorkerDied):
                instance.worker.usable = False
        for worker in self._workers:
            self.target.nursery.rest(worker)
        for place in self._places:
            self.target.clean(place)

    def plainly(self, place: Path, *steps: Step) -> tuple[Outcome, ...]:
        """Take steps in a plain `python -c`, which shares nothing with this run but the place."""
        return take_plainly(self.target.target, self.opening("plain", place), steps, self.target.patience())

    # --- what is written ---------------------------------------------------------------------------------------------

    def session(self) -> str:
        """A name that was never used before in this run."""
        return f"s{next(self.target.sessions)}"

    def turn(self, messages: int | None = None) -> tuple[Said, ...]:
        """What one call appends, with contents that were never written before."""
        number = next(self.target.turns)
        size = {"turn": messages or 3, "pair": 2, "message": 1}[self.target.opened.unit]
        roles = ("user", "assistant")
        return tuple(Said(roles[index % 2], f"t{number}.{index + 1}") for index in range(size))

    def turns(self, number: int) -> list[tuple[Said, ...]]:
        return [self.turn() for _ in range(number)]

    # --- the history -------------------------------------------------------------------------------------------------

    def record(self, worker: WorkerProcess) -> str:
        """The file that a worker's calls are recorded in."""
        return str(self.folder / f"{worker.pid}.jsonl")

    def wait_for_events(self, instance: Instance, number: int, patience: float = 3.0) -> None:
        """Wait until a caller has recorded so many events, or for a while."""
        path = Path(self.record(instance.worker))
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if path.exists() and path.read_bytes().count(b"\n") >= number:
                return
            time.sleep(0.001)

    def events(self) -> list[Event]:
        return load(self.folder) if any(self.folder.glob("*.jsonl")) else []

    def judge(
        self,
        *kinds: ViolationKind,
        events: Sequence[Event] | None = None,
        least: int = ENOUGH,
    ) -> None:
        """Judge what was recorded. Raises Broken for violations (of these kinds, if any are named), and Untested if
        fewer than `least` operations were acknowledged."""
        verdict = judge(self.events() if events is None else events)
        found = [one for one in verdict.violations if not kinds or one.kind in kinds]
        if found:
            raise Broken(found)
        if verdict.acknowledged < least:
            raise Untested(f"only {verdict.acknowledged} operations were acknowledged, and {least} are needed")

    # --- expectations ------------------------------------------------------------------------------------------------

    def check(self, condition: object, story: str, *, session: str | None = None) -> None:
        """Raise Broken unless the condition holds."""
        if not condition:
            self.broken(story, session=session)

    def broken(self, story: str, *, session: str | None = None) -> NoReturn:
        raise Broken([self.violation(story, session=session)])

    def violation(self, story: str, *, session: str | None = None) -> Violation:
        """What happened, with the calls on this session that led to it."""
        return Violation("other", story, self._about(session), session=session or "")

    def _about(self, session: str | None) -> tuple[Event, ...]:
        events = sorted(self.events(), key=lambda event: event.at)
        calls = {(event.worker, event.op) for event in events if event.session == session}
        about = [event for event in events if (event.worker, event.op) in calls]
        return tuple(about[-_SHOWN_EVENTS:])

    def same(self, found: Sequence[Seen], expected: Iterable[Sequence[Said]], story: str, *, session: str) -> None:
        """Raise Broken unless these messages, and no others, came back in this order."""
        wanted = [(said.role, said.content) for turn in expected for said in turn]
        got = [(seen.role, seen.content) for seen in found]
        if got != wanted:
            self.broken(f"{story}: {difference(wanted, got)}", session=session)

    def refused(self, instance: Instance, step: Step, story: str) -> None:
        """Raise Broken unless the store raises."""
        self.check(not instance.take(step).ok, f"{said(step)} was accepted: {story}", session=step.session)
