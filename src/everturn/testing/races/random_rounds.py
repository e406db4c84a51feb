"""Random rounds: several writers and a reader start together, and their calls are judged as a history.

Adds to sweep.py, and is the only way where no point to stop at is visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import Mode
from everturn.testing.results import Event
from everturn.testing.workers.messages import CallerSteps, Do, Done, SideBySide, Step

WRITERS, ROUNDS, TURNS, READS = 4, 20, 3, 5
_START_DELAY = 0.003  # seconds until a round starts: long enough for every worker to get its job

StepPlan = Callable[[Kit, str, str], tuple[Step, ...]]
"""Gives the steps of one caller in one round. Takes kit, session and the caller: "reader", "writer 1", ..."""


def write_and_read(kit: Kit, session: str, who: str) -> tuple[Step, ...]:
    """The default plan: a writer appends turns and reads them, the reader only reads."""
    if who.startswith("reader"):
        return tuple(Step("read", session) for _ in range(READS))
    steps = [Step("append", session, (kit.turn(),)) for _ in range(TURNS)]
    steps.insert(kit.dice.randrange(1, TURNS + 1), Step("read", session))
    return tuple(steps)


def callers() -> list[str]:
    return [*(f"writer {number}" for number in range(1, WRITERS + 1)), "reader"]


def run_rounds(kit: Kit, mode: Mode, plan: StepPlan = write_and_read, *, rounds: int = ROUNDS) -> Instance:
    """Run so many rounds, each on a fresh session, or as many as there is time for (five at least).

    After each round a session that was appended to is read once more, by an instance that took part. Returns that
    instance. All calls are in the kit's history.
    """
    callers_ = _SeveralProcesses(kit) if mode == "processes" else _OneProcess(kit, mode)
    played = 0
    for number in range(rounds):
        if number >= 5 and not kit.time_left():
            break
        session = kit.session()
        steps = {who: plan(kit, session, who) for who in callers()}
        callers_.run(steps)
        if any(step.op == "append" and step.session == session for each in steps.values() for step in each):
            callers_.reader.read(session)
        played += 1
    kit.notes.append(f"{mode}: {WRITERS} writers and a reader, {played} random rounds")
    return callers_.reader


class _SeveralProcesses:
    """Each caller is a process."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._instances: dict[str, Instance] = {who: kit.borrow(who) for who in callers()}
        self.reader = self._instances["reader"]

    def run(self, steps: dict[str, tuple[Step, ...]]) -> None:
        start_at = time.monotonic() + _START_DELAY
        for who, instance in self._instances.items():
            instance.worker.send(instance.job(*steps[who], start_at=start_at))
        for instance in self._instances.values():
            self._kit.report(instance.worker, Done)


class _OneProcess:
    """Each caller is a thread or a task, in one process and on one instance."""

    def __init__(self, kit: Kit, mode: Mode) -> None:
        self._kit = kit
        self._mode = mode
        self.reader = (kit.open if mode == "threads" else kit.borrow)("last reader")  # as in sweep.py
        self._names = {who: kit.unique_name(who) for who in callers()}

    def run(self, steps: dict[str, tuple[Step, ...]]) -> None:
        callers = tuple(CallerSteps(self._names[who], steps[who]) for who in self._names)
        worker = self.reader.worker
        mode: SideBySide = "threads" if self._mode == "threads" else "tasks"
        self._kit.ask(worker, Do(self.reader.slot, callers, mode, record=self._kit.record(worker)), Done)


def shared_rounds(kit: Kit, mode: Mode) -> list[Event]:
    """Get the history of rounds of the default plan. They run once; all clauses judge the same history."""
    name = f"rounds of {mode}"
    if name not in kit.environment.shared_results:
        run_rounds(kit, mode)
        kit.environment.shared_results[name] = kit.events()
    events: list[Event] = kit.environment.shared_results[name]
    return events
