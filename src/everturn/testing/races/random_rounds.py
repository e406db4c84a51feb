"""Random rounds: several writers and a reader start together, and what they did is judged as a history.

The supplement to sweep.py, and the only way where no point to stop at is visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from everturn.testing.kit.kit import Instance, Kit
from everturn.testing.races.sweep import Mode
from everturn.testing.results import Event
from everturn.testing.workers.messages import Do, Done, Lane, SideBySide, Step

WRITERS, ROUNDS, TURNS, READS = 4, 20, 3, 5
_HEAD_START = 0.003  # seconds in which all workers have heard of the round

Plan = Callable[[Kit, str, str], tuple[Step, ...]]
"""The steps of one caller in one round: kit, session, and who it is ("reader", or "writer 1" and so on)."""


def write_and_read(kit: Kit, session: str, who: str) -> tuple[Step, ...]:
    """The usual plan: a writer appends turns and reads its own, the reader reads all the time."""
    if who.startswith("reader"):
        return tuple(Step("read", session) for _ in range(READS))
    steps = [Step("append", session, (kit.turn(),)) for _ in range(TURNS)]
    steps.insert(kit.dice.randrange(1, TURNS + 1), Step("read", session))
    return tuple(steps)


def callers() -> list[str]:
    return [*(f"writer {number}" for number in range(1, WRITERS + 1)), "reader"]


def play(kit: Kit, mode: Mode, plan: Plan = write_and_read, *, rounds: int = ROUNDS) -> Instance:
    """Play so many rounds, each on a fresh session, or as many as there is time for (five at least).

    After each round the session is read once more, if it was appended to, by one that took part in it, and who is
    returned. All of it is in the kit's history.
    """
    players = _Processes(kit) if mode == "processes" else _Lanes(kit, mode)
    played = 0
    for number in range(rounds):
        if number >= 5 and not kit.time_left():
            break
        session = kit.session()
        steps = {who: plan(kit, session, who) for who in callers()}
        players.play(steps)
        if any(step.op == "append" and step.session == session for each in steps.values() for step in each):
            players.reader.read(session)
        played += 1
    kit.notes.append(f"{mode}: {WRITERS} writers and a reader, {played} random rounds")
    return players.reader


class _Processes:
    """Each caller is a process."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._instances: dict[str, Instance] = {who: kit.borrow(who) for who in callers()}
        self.reader = self._instances["reader"]

    def play(self, steps: dict[str, tuple[Step, ...]]) -> None:
        start_at = time.monotonic() + _HEAD_START
        for who, instance in self._instances.items():
            instance.worker.send(instance.order(*steps[who], start_at=start_at))
        for instance in self._instances.values():
            self._kit.report(instance.worker, Done)


class _Lanes:
    """Each caller is a thread or a task, in one process and on one instance."""

    def __init__(self, kit: Kit, mode: Mode) -> None:
        self._kit = kit
        self._mode = mode
        self.reader = (kit.open if mode == "threads" else kit.borrow)("last reader")  # as in sweep.py
        self._names = {who: kit.unique_name(who) for who in callers()}

    def play(self, steps: dict[str, tuple[Step, ...]]) -> None:
        lanes = tuple(Lane(self._names[who], steps[who]) for who in self._names)
        worker = self.reader.worker
        mode: SideBySide = "threads" if self._mode == "threads" else "tasks"
        self._kit.ask(worker, Do(self.reader.slot, lanes, mode, record=self._kit.record(worker)), Done)


def shared_rounds(kit: Kit, mode: Mode) -> list[Event]:
    """The history of the usual rounds, played once in a run for all clauses that judge them."""
    name = f"rounds of {mode}"
    if name not in kit.target.shared:
        play(kit, mode)
        kit.target.shared[name] = kit.events()
    events: list[Event] = kit.target.shared[name]
    return events
