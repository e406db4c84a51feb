"""Clauses of pauses: workers that stop inside a call and go on much later, locks of the dead, locks of one instance.

Between the stop of a worker and its end an hour passes: by the clocks of all others, and by its own when it goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import NO_LOSS, Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.kit.target import TargetError
from everturn.testing.races.sweep import Ended, Race, Sweep, modes
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import (
    CallerSteps,
    Do,
    Done,
    Interleave,
    Interleaved,
    Paused,
    SideBySide,
    Step,
    Stop,
)

registry = ClauseRegistry("concurrency", since=2)
HOUR = 3600.0
ROUNDS = 4
READS, READING, MEANWHILE = 30, 0.1, 20  # reads beside an append, their seconds if blocked; appends of others
PATIENCE = 0.05  # seconds to wait for a call that may be blocked


# --- paused for longer than any lease --------------------------------------------------------------------------------


class Pause(msgspec.Struct, frozen=True):
    """A worker that was stopped inside its call, and one that works on the same session meanwhile."""

    session: str
    paused: Instance
    other: Instance


Plan = Callable[[Instance, str], Step]
"""Prepares a session, and returns the call in which the worker is stopped."""


def append_step(kit: Kit, _store: Instance, session: str) -> Step:
    return Step("append", session, (kit.turn(),))


def spread(last: int, number: int) -> list[int]:
    """Choose so many points from 1 to `last`, evenly; all, if there are no more."""
    if last <= number:
        return list(range(1, last + 1))
    return sorted({1 + round(index * (last - 1) / (number - 1)) for index in range(number)})


def count_points(kit: Kit, store: Instance, plan: Plan) -> int:
    """Count the driver calls of the call that is planned."""
    session = kit.session()
    store.append(session, kit.turn())
    step = plan(store, session)
    return kit.ask(store.worker, store.job(step, stop=Stop(0)), Done).stops


def pause_everywhere(kit: Kit, plans: Sequence[Plan], *, points: int, seconds: float) -> None:
    """Stop workers at so many points of each planned call, all in the same seconds, while others store turns.

    Each has a place of its own, so that a lock of one is in no other's way.
    """
    pauses: list[Pause] = []
    for plan in plans:
        last = count_points(kit, kit.open("counted", at=kit.place(), watched=True), plan)
        pauses += filter(None, [_paused_at(kit, plan, n) for n in spread(last, points)])
    for pause in pauses:
        os.kill(pause.paused.worker.pid, signal.SIGSTOP)  # threads that renew a lease stop, too
    let_an_hour_pass(kit)
    try:
        for pause in pauses:
            pause.other.set_clock(HOUR)
            steps = (Step("append", pause.session, (kit.turn(),)), Step("read", pause.session))
            pause.other.worker.send(pause.other.job(*steps))
        ends = time.monotonic() + seconds
        waited = [pause.other.worker.poll(max(ends - time.monotonic(), 0)) for pause in pauses]
    finally:
        for pause in pauses:
            os.kill(pause.paused.worker.pid, signal.SIGCONT)
    for pause in pauses:
        pause.paused.worker.resume(clock=HOUR)
        kit.report(pause.paused.worker, Done)
        kit.report(pause.other.worker, Done)
        pause.other.read(pause.session)
        pause.other.append(pause.session, kit.turn())
        pause.other.read(pause.session)
    kit.notes.append(f"{len(pauses)} workers were stopped for an hour; {sum(waited)} others went on meanwhile")


def let_an_hour_pass(kit: Kit) -> None:
    """Let an hour pass for what expires on the server: a lock of ten seconds is gone, whoever holds it.

    Redis alone: PostgreSQL has no values that expire, and its clock cannot be moved.
    """
    if "redis_url" in kit.environment.servers:
        kit.environment.servers["redis_url"].age(HOUR)


def _paused_at(kit: Kit, plan: Plan, n: int) -> Pause | None:
    place = kit.place()
    paused, other = kit.open("paused", at=place, watched=True), kit.open("other", at=place)
    session = kit.session()
    kit.replays[session] = f"{kit.clause.id}@{n}"
    for store in (paused, other):
        store.append(session, kit.turn())
    step = plan(paused, session)
    paused.worker.send(paused.job(step, stop=Stop(n)))
    return Pause(session, paused, other) if isinstance(kit.any_report(paused.worker), Paused) else None


@registry.clause(
    "paused-in-append",
    "A worker that is stopped inside an append for an hour, and goes on, takes away nothing that others stored.",
    incident="A lock of 30 s and no fence: a worker swapped out for a minute writes its old list over a new one.",
    needs=["appends", "processes"],
    weight=3,
)
def paused_in_append(kit: Kit) -> None:
    pause_everywhere(kit, [partial(append_step, kit)], points=_points(kit), seconds=_seconds(kit))
    kit.judge(least=3)


@registry.clause(
    "paused-in-change",
    "A worker that is stopped inside a clear, trim or rollback for an hour, and goes on, takes no later turn along.",
    incident="A nightly trim under a lock of a minute, on a machine that hibernates: it deletes what came since.",
    needs=["appends", "processes", "clear|trim|rollback"],
    weight=3,
)
def paused_in_change(kit: Kit) -> None:
    plans: list[Plan] = []
    if kit.offers("clear"):
        plans.append(lambda _, session: Step("clear", session))
    if kit.offers("trim"):
        plans.append(lambda _, session: Step("trim", session, (len(kit.turn()),)))
    if kit.offers("rollback"):
        plans.append(lambda store, session: Step("rollback", session, (store.save_snapshot(session),)))
    pause_everywhere(kit, plans, points=max(_points(kit) // 2, 3), seconds=_seconds(kit))
    kit.judge(least=3)


def _points(kit: Kit) -> int:
    return 6 if kit.quick else 16


def _seconds(kit: Kit) -> float:
    """Return how long a pause really takes: leases that a server counts do not follow the workers' clocks."""
    return 0.7 if kit.quick else 3.0


# --- the lock of a dead owner ----------------------------------------------------------------------------------------


@registry.clause(
    "dead-owner",
    "Two processes that find what a killed one left behind, at the same time, both store their turns.",
    incident="Both see that the owner of the lock is dead; one takes it, and the other removes the lock just taken.",
    needs=["appends", "processes"],
    weight=3,
)
def dead_owner(kit: Kit) -> None:
    first, second, reader = kit.open("A", watched=True), kit.open("B", watched=True), kit.open("reader")
    for store in (first, second, reader):
        store.set_clock(HOUR)  # if the lock of the dead one has to grow old, it is
    plan = partial(append_step, kit)
    held = count_points(kit, first, plan) // 2

    def race(n: int, m: int) -> None:
        """Stop the first at its n-th call, the second at its m-th, and let them go on in this order."""
        session = kit.session()
        reader.append(session, kit.turn())
        _die_in_append(kit, first, session, held)
        let_an_hour_pass(kit)
        for store, point in ((first, n), (second, m)):
            store.worker.send(store.job(plan(store, session), stop=Stop(point)))
            if store.worker.poll(PATIENCE):
                kit.any_report(store.worker)
        ends = time.monotonic() + kit.environment.patience.seconds()
        while busy := [store for store in (first, second) if store.worker.busy]:
            for store in busy:  # whoever waited for the other's lock is stopped when it has it
                _go_on(kit, store, seconds=PATIENCE if time.monotonic() < ends else None)
        reader.read(session)

    session = kit.session()
    _die_in_append(kit, first, session, held)
    let_an_hour_pass(kit)
    last = kit.ask(first.worker, first.job(plan(first, session), stop=Stop(0)), Done).stops  # of taking over, too
    races = 0
    for n in range(1, min(last, 10) + 1):
        for m in (last * 3 // 5, last * 3 // 4):
            race(n, m)
            races += 1
        if races >= 12 and not kit.time_left():
            break
    kit.notes.append(f"a process was killed at driver call {held} of an append, and two others came, {races} times")
    kit.judge(*NO_LOSS, least=3)


def _go_on(kit: Kit, store: Instance, seconds: float | None) -> None:
    """Let a stopped worker go on until it is done, or for so many seconds if it has to wait for another."""
    while store.worker.busy:
        if store.worker.paused:
            store.worker.resume()
        if seconds is not None and not store.worker.poll(seconds):
            return
        kit.any_report(store.worker)


def _die_in_append(kit: Kit, beside: Instance, session: str, n: int) -> None:
    """Kill a process at its n-th driver call of an append on the session."""
    dead = kit.open("dead", at=beside.place, watched=True)
    dead.worker.send(dead.job(Step("append", session, (kit.turn(),)), stop=Stop(n, "kill")))
    try:
        kit.any_report(dead.worker)
    except WorkerDied:
        return
    dead.close()


# --- several instances in one process --------------------------------------------------------------------------------


@registry.clause(
    "instances-at-once",
    "Two instances in one process, in threads or tasks of their own, exclude each other as two processes do.",
    incident="fcntl.lockf locks for the whole process: two requests of one worker both hold the lock, and one is lost.",
    needs=["appends", "processes"],
    weight=3,
)
def instances_at_once(kit: Kit) -> None:
    sweep = Sweep(kit, "instances")
    for other in ("append", *(name for name in ("trim", "clear") if kit.offers(name))):
        sweep.run(partial(_race, kit, other), _read_afterwards)
    kit.notes.append(sweep.describe())
    kit.judge(least=10)


@registry.clause(
    "started-apart",
    "Processes that were started apart, and not forked from one, exclude each other and see each other's turns.",
    incident="A lock file named by hash(session_id): Python's hashes differ from process to process, and so do locks.",
    needs=["appends", "processes"],
    weight=2,
)
def started_apart(kit: Kit) -> None:
    try:
        sweep = Sweep(kit, "strangers")
    except TargetError as exc:
        raise Untested(f"the target could not be imported a second time: {exc}") from exc
    for other in ("append", *(name for name in ("trim", "clear") if kit.offers(name) and not kit.quick)):
        sweep.run(partial(_race, kit, other), _read_afterwards)
    kit.notes.append(sweep.describe().replace("strangers", "processes started apart", 1))
    kit.judge(least=10)


def _race(kit: Kit, other: str, reader: Instance) -> Race:
    session = kit.session()
    reader.values(*(Step("append", session, (kit.turn(),)) for _ in range(3)))
    args = {"append": (kit.turn(),), "trim": (2 * len(kit.turn()),), "clear": ()}[other]
    return Race(session, (Step("append", session, (kit.turn(),)),), (Step(other, session, args),))


def _read_afterwards(reader: Instance, session: str, _ended: list[Ended]) -> None:
    reader.read(session)


@registry.clause(
    "threads-of-processes",
    "Threads of several processes, with instances of their own or one for all, lose no turn of each other.",
    incident="A lock for threads and none for processes, or the other way round: tests use one of the two.",
    needs=["appends", "processes"],
    weight=2,
)
def threads_of_processes(kit: Kit) -> None:
    stores = [kit.open(name) for name in ("first", "second")]
    shared = modes(kit)[-1]  # threads or tasks on one instance, if it may be shared
    for _ in range(ROUNDS):
        session = kit.session()
        for store in stores:
            store.worker.send(_callers(kit, store, session, own=not kit.environment.opened.awaited))
        for store in stores:
            kit.report(store.worker, Done)
        if shared != "processes":
            for store in stores:
                store.worker.send(_callers(kit, store, session, own=False))
            for store in stores:
                kit.report(store.worker, Done)
        stores[0].read(session)
    kit.judge(*NO_LOSS)


def _callers(kit: Kit, store: Instance, session: str, *, own: bool) -> Do:
    """Make the job of three callers in one process, each of which stores two turns."""
    callers = tuple(
        CallerSteps(kit.unique_name("caller"), tuple(Step("append", session, (kit.turn(),)) for _ in range(2)))
        for _ in range(3)
    )
    opening = kit.opening("own", store.place) if own else None
    mode: SideBySide = "tasks" if kit.environment.opened.awaited else "threads"
    return Do(store.slot, callers, mode, own=opening, record=kit.record(store.worker))


@registry.clause(
    "reader-beside-append",
    "A thread that reads while another one is inside an append takes no lock of it away: other processes lose no turn.",
    incident="POSIX locks belong to a process: closing any handle of the file frees them, and a read closes one.",
    needs=["appends", "processes"],
    weight=2,
)
def reader_beside_append(kit: Kit) -> None:
    if kit.environment.opened.awaited:
        raise NotOffered("an awaited store runs in one thread")
    inside, other = kit.open("inside", watched=True), kit.open("other")
    last = count_points(kit, inside, partial(append_step, kit))
    for n in spread(last, 6 if kit.quick else 16):
        session = kit.session()
        for store in (inside, other):
            store.append(session, kit.turn())
        job = Interleave(
            inside.slot,
            CallerSteps(kit.unique_name("writer"), (Step("append", session, (kit.turn(),)),)),
            CallerSteps(kit.unique_name("reader"), tuple(Step("read", session) for _ in range(READS))),
            n,
            "calls",
            READING,
            own=kit.opening("own", inside.place),
            record=kit.record(inside.worker),
        )
        inside.worker.send(job)
        for _ in range(MEANWHILE):
            if inside.worker.poll(0):
                break
            other.take(Step("append", session, (kit.turn(),)))
        kit.report(inside.worker, Interleaved)
        other.read(session)
    kit.judge(*NO_LOSS, least=3)
