"""The tools of a clause: places, instances of the target in worker processes, turns to write, a history to judge.

The promises are in contract/; the violations that a history can show are in history/.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NoReturn, TypeVar

from everturn.testing.history import judge, load
from everturn.testing.kit.answers import Answers
from everturn.testing.kit.clause import Broken, Clause, Untested, describe_step
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.kit.shared_store import SharedWorker
from everturn.testing.results import Event, Violation, ViolationKind
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.controller import JobFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.fresh_process import take_in_fresh_process
from everturn.testing.workers.messages import (
    Close,
    Job,
    Open,
    Opened,
    Outcome,
    Ready,
    Report,
    Step,
    Stop,
)

T = TypeVar("T", bound=Report)
ENOUGH = 20  # acknowledged operations, below which a history shows nothing
# For clauses that promise that nothing is lost. Other clauses promise that turns are whole, fresh and in order.
NO_LOSS: tuple[ViolationKind, ...] = ("lost", "duplicate", "phantom", "resurrected")
_SHOWN_EVENTS = 40
STARTING = 30.0  # seconds in which a fresh interpreter starts and imports the target, on a busy machine


class Kit:
    """Everything a clause needs. One for each clause of a run; closed when the clause ends."""

    def __init__(self, environment: Environment, clause: Clause, *, until: float, only: int | None = None) -> None:
        """`until` is when the clause should be done (monotonic); `only` the one point of a sweep to replay."""
        self.environment = environment
        self.clause = clause
        self.until = until
        self.only = only
        self.dice = Random(f"{environment.seed}/{clause.id}")  # noqa: S311 - repeatable, not secret
        self.notes: list[str] = []  # remarks for the report, beside the status
        self.replays: dict[str, str] = {}  # by session: the clause and point (`id@n`) that replays it
        self.answers = Answers()
        self.folder = environment.new_folder(f"history_{clause.id}")
        self._names: dict[str, int] = {}
        self._slots = count(1)
        self._instances: list[Instance] = []
        self._places: list[Path] = []
        self._workers: list[WorkerProcess] = []
        self._borrowed: list[SharedWorker] = []

    def offers(self, what: str) -> bool:
        """Whether the target offers an operation or option."""
        return what in self.environment.offered

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def quick(self) -> bool:
        return self.environment.quick

    def time_left(self) -> bool:
        """Whether there is time for work that is not essential."""
        return time.monotonic() < self.until

    def ask(self, worker: WorkerProcess, job: Job, kind: type[T]) -> T:
        """Send a job and wait for a report of this kind. Raises Untested if none comes in time."""
        worker.send(job)
        return self.report(worker, kind)

    def report(self, worker: WorkerProcess, kind: type[T]) -> T:
        """Wait for a report of this kind. Raises Untested if none comes in time."""
        report = self.any_report(worker)
        if not isinstance(report, kind):
            raise TypeError(f"expected {kind.__name__}, got {report!r}")
        return report

    def any_report(self, worker: WorkerProcess) -> Report:
        """Wait for the next report of a worker. Raises Untested if none comes in time."""
        patience = self.environment.patience
        seconds = patience.seconds(worker.sent)
        began = time.monotonic()
        try:
            report = worker.report(seconds)
        except StillBusy:
            raise Untested(patience.saw_hang(worker.sent, self.clause.id, seconds, worker.stack())) from None
        patience.saw_answer(worker.sent, time.monotonic() - began)
        self.answers.count(worker.sent, report)
        return report

    # --- places and instances ----------------------------------------------------------------------------------------

    def place(self) -> Path:
        """Make a fresh directory. Its name is unique, and can be a key prefix or a schema."""
        place = self.environment.new_place()
        self._places.append(place)
        return place

    def open(
        self,
        name: str = "A",
        *,
        at: Path | None = None,
        beside: Instance | None = None,
        watched: bool = False,
        stranger: bool = False,
        **options: Any,
    ) -> Instance:
        """Open the target: at the clause's place or another, in a new process or in that of another instance.

        `options` are ttl, timeout or vfs. A store that lives in one process is opened once for each place. The process
        of a `stranger` was not forked from the one that the others are forked from.
        """
        place = at or (beside.place if beside else self._places[0] if self._places else self.place())
        if not self.environment.offer.processes:
            first = next((one for one in self._instances if one.place == place), None)
            if first is not None:
                return self.adopt(first.worker, first.slot, place, name, first.opened)
        worker = beside.worker if beside else self.worker(watched=watched, stranger=stranger)
        slot = f"slot {next(self._slots)}"
        opened = self.ask(worker, self.opening(slot, place, **options), Opened)
        return self.adopt(worker, slot, place, name, opened)

    def borrow(self, name: str = "A", *, beside: Instance | None = None, watched: bool = False) -> Instance:
        """Get an instance at the place that clauses share, perhaps one that another clause has used.

        For a clause that only looks at sessions of its own. Otherwise like `open`.
        """
        if "session_id" in self.environment.offer.options:  # one object per session: they would pile up
            return self.open(name, beside=beside, watched=watched)
        shared_place = self.environment.shared_place
        if beside is not None:
            shared = next(one for one in self._borrowed if one.worker is beside.worker)
        elif self._borrowed and not self.environment.offer.processes:
            shared = self._borrowed[0]
        else:
            shared = shared_place.take_worker(watched=watched)
            self._borrowed.append(shared)
        slot = next((slot for slot in shared.slots if not self._uses(shared.worker, slot)), None)
        if slot is None:
            slot, job = shared_place.opening()
            shared.slots[slot] = self.ask(shared.worker, job, Opened)
        return self.adopt(shared.worker, slot, shared_place.path, name, shared.slots[slot])

    def _uses(self, worker: WorkerProcess, slot: str) -> bool:
        """Whether this clause has the instance already, so that it must get another."""
        return self.environment.offer.processes and any(
            one.worker is worker and one.slot == slot for one in self._instances
        )

    def open_or_none(self, name: str, *, at: Path) -> Instance | None:
        """Open the target where it is allowed to refuse. Returns None if it does."""
        try:
            return self.open(name, at=at)
        except JobFailed:
            return None

    def opening(self, slot: str, place: Path, *, stop: Stop | None = None, **options: Any) -> Open:
        """Make the job that opens an instance there."""
        return Open(slot, str(place), {**self.environment.urls, **options}, stop)

    def adopt(self, worker: WorkerProcess, slot: str, place: Path, name: str, opened: Opened) -> Instance:
        """Make an Instance of one that a clause opened by its own job."""
        instance = Instance(self, worker, slot, place, self.unique_name(name))
        instance.opened = opened
        self._instances.append(instance)
        return instance

    def unique_name(self, name: str) -> str:
        """Make a name for a caller in the history that no other caller of this clause has."""
        self._names[name] = self._names.get(name, 0) + 1
        return name if self._names[name] == 1 else f"{name}{self._names[name]}"

    def worker(self, *, watched: bool = False, stranger: bool = False) -> WorkerProcess:
        server = self.environment.fork_server
        worker = server.stranger() if stranger else server.worker(watched=watched)
        self._workers.append(worker)
        return worker

    def release(self, worker: WorkerProcess) -> None:
        """Give back a worker that holds nothing more of this clause."""
        self._workers.remove(worker)
        self.environment.fork_server.rest(worker)

    def close(self, instance: Instance) -> None:
        others = [one for one in self._instances if one is not instance]
        has_twin = any(one.slot == instance.slot and one.worker is instance.worker for one in others)
        if instance in self._instances and not has_twin and instance.worker.usable:
            self.ask(instance.worker, Close(instance.slot), Ready)
            for shared in self._borrowed:
                if shared.worker is instance.worker:
                    shared.slots.pop(instance.slot, None)
        self._instances = others

    def _is_borrowed(self, instance: Instance) -> bool:
        return any(shared.worker is instance.worker and instance.slot in shared.slots for shared in self._borrowed)

    def end(self, *, kept: bool) -> None:
        """Close everything; errors of the store are ignored here. Borrowed instances wait for the next clause if the
        promise was `kept`, and are closed otherwise."""
        for shared in self._borrowed:
            self.environment.shared_place.give_back(shared)
        if self._borrowed and not kept:
            self.environment.shared_place.close()
        for instance in [one for one in self._instances if not self._is_borrowed(one)]:
            if not instance.worker.idle:
                # A clause that ended early left a job unanswered: the next report would be that job's.
                instance.worker.usable = False
                continue
            try:
                self.close(instance)
            except (Untested, JobFailed, WorkerDied):
                instance.worker.usable = False
        for worker in self._workers:
            self.environment.fork_server.rest(worker)
        for place in self._places:
            self.environment.clean(place)

    def take_in_fresh_process(self, place: Path, *steps: Step) -> tuple[Outcome, ...]:
        """Take steps in a fresh `python -c`, which shares only the place with this run."""
        return take_in_fresh_process(
            self.environment.target, self.opening("plain", place), steps, self.environment.patience.seconds() + STARTING
        )

    # --- messages to write --------------------------------------------------------------------------------------------

    def session(self) -> str:
        """Make a session name that was never used before in this run."""
        return f"s{next(self.environment.sessions)}"

    def turn(self, messages: int | None = None) -> tuple[SentMessage, ...]:
        """Make the messages of one append, with contents that were never written before in this run."""
        number = next(self.environment.turns)
        size = {"turn": messages or 3, "pair": 2, "message": 1}[self.environment.opened.unit]
        roles = ("user", "assistant")
        return tuple(SentMessage(roles[index % 2], f"t{number}.{index + 1}") for index in range(size))

    def turns(self, number: int) -> list[tuple[SentMessage, ...]]:
        return [self.turn() for _ in range(number)]

    # --- the history -------------------------------------------------------------------------------------------------

    def record(self, worker: WorkerProcess) -> str:
        """Name the file in which a worker's calls are recorded."""
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
        """Judge the recorded history. Raises Broken for violations (of these kinds, if any are named), and Untested if
        fewer than `least` operations were acknowledged."""
        verdict = judge(self.events() if events is None else events)
        found = [one for one in verdict.violations if not kinds or one.kind in kinds]
        if found:
            raise Broken(found)
        if verdict.acknowledged < least:
            raise Untested(f"only {verdict.acknowledged} operations were acknowledged, and {least} are needed")

    # --- expectations ------------------------------------------------------------------------------------------------

    def check(self, condition: object, story: str, *, session: str | None = None) -> None:
        """Raise Broken unless the condition holds: the answer differs from what it must be."""
        if not condition:
            self.broken(story, session=session)

    def broken(self, story: str, *, session: str | None = None, kind: ViolationKind = "differs") -> NoReturn:
        raise Broken([self.violation(story, session=session, kind=kind)])

    def violation(self, story: str, *, session: str | None = None, kind: ViolationKind = "differs") -> Violation:
        """Make a violation with the latest calls on this session."""
        return Violation(kind, story, self._about(session), session=session or "")

    def _about(self, session: str | None) -> tuple[Event, ...]:
        events = sorted(self.events(), key=lambda event: event.at)
        calls = {(event.worker, event.op) for event in events if event.session == session}
        about = [event for event in events if (event.worker, event.op) in calls]
        return tuple(about[-_SHOWN_EVENTS:])

    def same(
        self, found: Sequence[ReadMessage], expected: Iterable[Sequence[SentMessage]], story: str, *, session: str
    ) -> None:
        """Raise Broken unless these messages, and no others, came back in this order."""
        wanted = [(sent.role, sent.content) for turn in expected for sent in turn]
        got = [(seen.role, seen.content) for seen in found]
        if got != wanted:
            self.broken(f"{story}: {_difference(wanted, got)}", session=session)

    def refused(self, instance: Instance, step: Step, story: str) -> None:
        """Raise Broken unless the store raises."""
        if instance.take(step).ok:
            self.broken(f"{describe_step(step)} was accepted: {story}", session=step.session, kind="accepted")


def _difference(wanted: Sequence[tuple[str, Any]], got: Sequence[tuple[str, Any]]) -> str:
    """Say in one line what differs first between two lists of (role, content)."""
    for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
        if one != other:
            counts = f"{len(got)} came back, {len(wanted)} expected"
            return f"message {index + 1} is {_shown(other)}, not {_shown(one)} ({counts})"
    if len(got) < len(wanted):
        return f"{len(got)} of {len(wanted)} came back; the first missing is {_shown(wanted[len(got)])}"
    return f"{len(got)} came back, {len(wanted)} expected; the first too many is {_shown(got[len(wanted)])}"


def _shown(message: tuple[str, Any]) -> str:
    role, content = message
    text = ascii(content)
    return f"{role}: {text if len(text) <= 60 else f'{text[:50]}... ({len(text)} characters)'}"
