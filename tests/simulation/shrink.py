"""Shrinks a schedule that fails to one that can be read: calls go first, then faults, then delays become round.

A smaller schedule counts only if it fails in the same way. Nothing is drawn: what is left runs the same for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tests.simulation.network import CLEAN
from tests.simulation.schedules import Client, Delivery, Schedule, Server
from tests.simulation.world import Outcome

replace = msgspec.structs.replace
MOST_RUNS = 1500


def shrink(outcome: Outcome, kind: str, run: Callable[[Schedule], Outcome]) -> Outcome:
    """The smallest schedule found that has a finding of this kind, as it ran."""
    runs = 0

    def fails(schedule: Schedule) -> Outcome | None:
        nonlocal runs
        runs += 1
        again = run(schedule)
        return again if kind in again.kinds() else None

    written = replace(outcome.schedule, deliveries=dict(outcome.deliveries))
    best = fails(written)
    if best is None:  # it did not run the same again: the story as it was is all there is
        return outcome
    is_smaller = True
    while is_smaller and runs < MOST_RUNS:
        is_smaller = False
        for step in (_fewer_calls, _fewer_faults, _calmer, _rounder):
            place = 0
            while True:  # go on from where the last one was taken: what came before it was tried
                candidates = list(step(best.schedule))
                if place >= len(candidates) or runs >= MOST_RUNS:
                    break
                again = fails(candidates[place]) if candidates[place] != best.schedule else None
                if again is None:
                    place += 1
                else:
                    best, is_smaller = again, True
    return best


def _fewer_calls(schedule: Schedule) -> Iterator[Schedule]:
    clients = schedule.clients
    for at, client in enumerate(clients):
        if any(client.tasks):
            yield _with_client(schedule, at, replace(client, tasks=()))
    for at, client in enumerate(clients):
        for number, task_ops in enumerate(client.tasks):
            for place in range(len(task_ops)):
                left = task_ops[:place] + task_ops[place + 1 :]
                pause = task_ops[place].pause
                if place < len(task_ops) - 1:  # what comes behind it still comes when it came
                    later = replace(task_ops[place + 1], pause=task_ops[place + 1].pause + pause)
                    left = (*task_ops[:place], later, *task_ops[place + 2 :])
                tasks = (*client.tasks[:number], left, *client.tasks[number + 1 :])
                yield _with_client(
                    schedule, at, replace(client, tasks=tuple(task_ops for task_ops in tasks if task_ops))
                )


def _with_client(schedule: Schedule, at: int, client: Client) -> Schedule:
    # A client that does nothing stays: faults and clocks go by numbers.
    return replace(schedule, clients=(*schedule.clients[:at], client, *schedule.clients[at + 1 :]))


def _fewer_faults(schedule: Schedule) -> Iterator[Schedule]:
    for at in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:at] + schedule.faults[at + 1 :])
    if schedule.ttl is not None:
        yield replace(schedule, ttl=None)
    if len(schedule.servers) > 1 and not any(fault.kind == "failover" for fault in schedule.faults):
        yield replace(schedule, servers=schedule.servers[:1])


def _calmer(schedule: Schedule) -> Iterator[Schedule]:
    deliveries = schedule.deliveries or {}
    ops = {str(op.id) for op in schedule.ops}
    yield replace(
        schedule, deliveries={name: delivery for name, delivery in deliveries.items() if name.split()[0] in ops}
    )
    yield replace(
        schedule, deliveries={name: delivery for name, delivery in deliveries.items() if delivery.kind != "ok"}
    )
    for name in deliveries:
        yield replace(schedule, deliveries={other: delivery for other, delivery in deliveries.items() if other != name})


def _rounder(schedule: Schedule) -> Iterator[Schedule]:
    yield replace(schedule, servers=tuple(Server() for _ in schedule.servers))
    for at, client in enumerate(schedule.clients):
        yield _with_client(schedule, at, Client(client.tasks))
        yield _with_client(schedule, at, Client(client.tasks, opens_late=client.opens_late))
        for number, task_ops in enumerate(client.tasks):
            for place, op in enumerate(task_ops):
                for other in (replace(op, cancel=None), *(replace(op, pause=pause) for pause in _rounded(op.pause))):
                    tasks = (
                        *client.tasks[:number],
                        (*task_ops[:place], other, *task_ops[place + 1 :]),
                        *client.tasks[number + 1 :],
                    )
                    yield _with_client(schedule, at, replace(client, tasks=tasks))
    for name, delivery in (schedule.deliveries or {}).items():
        for hold in _rounded(delivery.hold):
            yield _with_delivery(schedule, name, replace(delivery, hold=hold, out=CLEAN.out, back=CLEAN.back))
        if delivery.notice is not None:
            for notice in (None, *_rounded(delivery.notice)):
                yield _with_delivery(schedule, name, replace(delivery, notice=notice))
    for at, fault in enumerate(schedule.faults):
        for moment in _rounded(fault.at):
            yield replace(
                schedule, faults=(*schedule.faults[:at], replace(fault, at=moment), *schedule.faults[at + 1 :])
            )
        for seconds in _rounded(fault.seconds):
            changed = replace(fault, seconds=seconds)
            yield replace(schedule, faults=(*schedule.faults[:at], changed, *schedule.faults[at + 1 :]))


def _with_delivery(schedule: Schedule, name: str, delivery: Delivery) -> Schedule:
    return replace(schedule, deliveries={**(schedule.deliveries or {}), name: delivery})


def _rounded(seconds: float) -> list[float]:
    """Rounder numbers of seconds than this one, the roundest first."""
    steps = [float(round(seconds)), round(seconds, 1), round(seconds, 2)]
    return [step for step in dict.fromkeys((0.0, *steps)) if len(str(step)) < len(str(seconds))]
