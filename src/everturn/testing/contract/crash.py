"""Clauses of crashes: a process killed with -9 at every driver call, right after an acknowledgement, or at random."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import LEAST_POINTS, stop_at_every_call
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import CallerSteps, Cancel, Done, LosePower, PowerOutcome, Step, Stop

registry = ClauseRegistry("crash")


def killed_at_every_call(kit: Kit, prepare: Callable[[Instance, str], Step], *, snapshots: bool = False) -> None:
    """Kill the process at the n-th driver call of a step, for every n; then read in another process.

    `prepare` gets an instance and a session with three turns, and returns the step to kill. With `snapshots`, a
    snapshot from before is rolled back to as well.
    """
    reader = kit.open("reader")

    def killed_at(n: int, session: str) -> bool:
        reader.values(*(Step("append", session, (kit.turn(),)) for _ in range(3)))
        kept = reader.save_snapshot(session) if snapshots else None
        store = kit.open("killed", watched=True)
        step = prepare(store, session)
        store.worker.send(store.job(step, stop=Stop(n, "kill")))
        died = _died(kit, store)
        reader.values(Step("read", session), Step("append", session, (kit.turn(),)), Step("read", session))
        if snapshots:
            reader.rollback(session, kept)
            reader.read(session)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")
    if not points:
        _random_kills(kit, reader, prepare)
    kit.judge(least=3 * LEAST_POINTS)


def _died(kit: Kit, store: Instance) -> bool:
    try:
        kit.report(store.worker, Done)
    except WorkerDied:
        return True
    return False


def _random_kills(kit: Kit, reader: Instance, prepare: Callable[[Instance, str], Step]) -> None:
    for _ in range(10):
        session = kit.session()
        for _ in range(3):
            reader.append(session, kit.turn())
        store = kit.open("killed")
        step = prepare(store, session)
        store.worker.send(store.job(step))
        time.sleep(kit.dice.uniform(0, 0.003))  # some part of the call; which one is left to chance
        store.kill()
        reader.read(session)


@registry.clause(
    "killed-in-append",
    "A process killed at any driver call of an append leaves the turn whole or absent, and all others as they were.",
    incident="Two inserts without a transaction: after a crash the question is there and the answer is not.",
    needs=["processes"],
    weight=3,
)
def killed_in_append(kit: Kit) -> None:
    killed_at_every_call(kit, lambda _, session: Step("append", session, (kit.turn(),)))


@registry.clause(
    "cancelled-in-append",
    "A task cancelled at any await of an append leaves the turn whole or absent, and a store that works.",
    incident="A user closes the tab: the request is cancelled between two awaits, and half of the turn is stored.",
    needs=["tasks"],
)
def cancelled_in_append(kit: Kit) -> None:
    store = kit.open()

    def cancelled_at(n: int, session: str) -> bool:
        store.values(*(Step("append", session, (kit.turn(),)) for _ in range(2)))
        caller = CallerSteps(store.name, (Step("append", session, (kit.turn(),)),))
        done = kit.ask(store.worker, Cancel(store.slot, caller, n, kit.record(store.worker)), Done)
        store.values(Step("append", session, (kit.turn(),)), Step("read", session))
        return done.stops >= n

    cancelled = stop_at_every_call(kit, cancelled_at, by="awaits")
    kit.notes.append(
        f"cancelled at {cancelled} awaits" if cancelled else "it never awaits: nothing can cancel it half-way"
    )
    kit.judge(least=3)


@registry.clause(
    "killed-in-keyed-append",
    "A process killed at any driver call of an append with a key leaves a retry with it to store the turn once.",
    incident="The key is written first, then the turn: after a crash the retry counts as done, and nothing is there.",
    needs=["processes", "key"],
    weight=2,
    since=2,
)
def killed_in_keyed_append(kit: Kit) -> None:
    reader = kit.open("reader")

    def killed_at(n: int, session: str) -> bool:
        first, turn = kit.turns(2)
        reader.append(session, first)
        step = Step("append", session, (turn,), {"key": "request-1"})
        store = kit.open("killed", watched=True)
        store.worker.send(store.job(step, stop=Stop(n, "kill")))
        died = _died(kit, store)
        reader.value(step)
        story = f"a process was killed at driver call {n} of an append with a key, and another tried again with it"
        kit.same(reader.read(session), [first, turn], story, session=session)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")


@registry.clause(
    "killed-in-undo",
    "A process killed at any driver call of an undo leaves the session as it was, or with the change taken back.",
    incident="Undo deletes what is there and then fills in what was: a crash in between, and neither is there.",
    needs=["processes", "undo", "clear"],
    since=2,
)
def killed_in_undo(kit: Kit) -> None:
    def prepare(store: Instance, session: str) -> Step:
        store.clear(session)
        store.append(session, kit.turn())
        store.clear(session)
        return Step("undo", session)

    killed_at_every_call(kit, prepare)


@registry.clause(
    "killed-in-clear",
    "A process killed at any driver call of a clear leaves the session cleared, or as it was.",
    incident="Rows deleted one by one: after a crash the conversation begins in the middle.",
    needs=["processes", "clear"],
    weight=2,
)
def killed_in_clear(kit: Kit) -> None:
    killed_at_every_call(kit, lambda _, session: Step("clear", session))


@registry.clause(
    "killed-in-trim",
    "A process killed at any driver call of a trim leaves the session trimmed, or as it was.",
    incident="A trim that deletes all and inserts the rest: a crash in between, and everything is gone.",
    needs=["processes", "trim"],
    weight=2,
)
def killed_in_trim(kit: Kit) -> None:
    killed_at_every_call(kit, lambda _, session: Step("trim", session, (2 * len(kit.turn()),)))


@registry.clause(
    "killed-in-snapshot",
    "A process killed at any driver call of taking a snapshot leaves the session as it was.",
    incident="A snapshot that moves the table out of the way first: after a crash there is no conversation.",
    needs=["processes", "save_snapshot", "rollback"],
    weight=2,
)
def killed_in_snapshot(kit: Kit) -> None:
    killed_at_every_call(kit, lambda _, session: Step("save_snapshot", session), snapshots=True)


@registry.clause(
    "killed-in-rollback",
    "A process killed at any driver call of a rollback leaves the session as it was or rolled back, and its snapshots.",
    incident="A rollback that drops the table and fills it again: a crash in between loses the past and the present.",
    needs=["processes", "save_snapshot", "rollback"],
    weight=2,
)
def killed_in_rollback(kit: Kit) -> None:
    def prepare(store: Instance, session: str) -> Step:
        snapshot: Any = store.save_snapshot(session)
        store.append(session, kit.turn())
        return Step("rollback", session, (snapshot,))

    killed_at_every_call(kit, prepare, snapshots=True)


@registry.clause(
    "killed-in-replace",
    "A process killed at any driver call of setting a session's messages leaves the old ones or the new ones.",
    incident="LlamaIndex SQLAlchemyChatStore.set_messages commits its delete first: a crash, and nothing is left.",
    needs=["processes", "replace"],
    weight=2,
)
def killed_in_replace(kit: Kit) -> None:
    killed_at_every_call(kit, lambda _, session: Step("replace", session, (kit.turn(),)))


@registry.clause(
    "killed-after-append",
    "A turn that was acknowledged is there though its process was killed in the same moment.",
    incident="A write-behind buffer of one second: what it held when the pod was evicted is gone, though acknowledged.",
    needs=["processes"],
    weight=2,
)
def killed_after_append(kit: Kit) -> None:
    reader = kit.open("reader")
    for number in range(8):
        session = kit.session()
        store = kit.open("killed")
        steps = tuple(Step("append", session, (kit.turn(),)) for _ in range(1 + number % 3))
        store.worker.send(store.job(*steps, die=True))
        if not _died(kit, store):
            raise Untested("the process could not be killed")
        reader.read(session)
    kit.judge(least=8)


@registry.clause(
    "random-kills",
    "However often processes are killed, what was acknowledged is there, and what was not is whole or absent.",
    incident="An out-of-memory killer on a busy night: the store opens again, and three conversations do not.",
    needs=["appends", "processes"],
    weight=3,
)
def random_kills(kit: Kit) -> None:
    reader = kit.open("reader")
    session = kit.session()
    rounds = 6 if kit.quick else 15
    for number in range(rounds):
        stores = [kit.open("killed"), kit.open("killed")]
        for store in stores:
            store.worker.send(store.job(*(Step("append", session, (kit.turn(),)) for _ in range(200))))
        for store in stores:
            kit.wait_for_events(store, kit.dice.randrange(2, 20))
        time.sleep(kit.dice.uniform(0, 0.002))  # some part of a call; which one is left to chance
        for store in stores:
            store.kill()
        reader.read(session)
        if number >= 3 and not kit.time_left():
            break
    kit.notes.append(f"{2 * (number + 1)} processes killed")
    kit.judge()


@registry.clause(
    "killed-while-opening",
    "A process killed at any driver call of opening the store leaves one that the next process can open.",
    incident="A migration applied in one transaction and recorded in another: after a crash it is applied again.",
    needs=["processes"],
    weight=2,
)
def killed_while_opening(kit: Kit) -> None:
    def killed_at(n: int, session: str) -> bool:
        place, worker = kit.place(), kit.worker(watched=True)
        worker.send(kit.opening("killed", place, stop=Stop(n, "kill")))
        try:
            kit.any_report(worker)
            died = False
        except WorkerDied:
            died = True
        store = kit.open("next", at=place)
        store.values(*(Step("append", session, (kit.turn(),)) for _ in range(2)), Step("read", session))
        store.close()
        kit.release(store.worker)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")
    kit.judge(least=0)


@registry.clause(
    "power-loss",
    "What was acknowledged is there after a power cut, at any sync of the disk; what was not is whole or absent.",
    incident="synchronous=NORMAL: a write-ahead log that is not synced loses acknowledged rows in 38 of 39 power cuts.",
    needs=["processes", "vfs"],
    weight=3,
)
def power_loss(kit: Kit) -> None:
    def cut_at(moment: Literal["before", "after"], n: int, session: str) -> bool:
        place, worker = kit.place(), kit.worker()
        caller = CallerSteps(
            kit.unique_name("cut off"), tuple(Step("append", session, (kit.turn(),)) for _ in range(6))
        )
        job = LosePower(kit.opening("power", place), caller, n, moment, kit.record(worker))
        lost = kit.ask(worker, job, PowerOutcome).lost
        worker.end()
        store = kit.open("later", at=place)
        store.values(Step("read", session), Step("append", session, (kit.turn(),)), Step("read", session))
        store.close()
        kit.release(store.worker)
        return lost

    cuts = stop_at_every_call(kit, partial(cut_at, "before")) + stop_at_every_call(kit, partial(cut_at, "after"))
    kit.notes.append(f"{cuts} power cuts")
    if not cuts:
        raise Untested("nothing was ever synced through the disk that was given")
    kit.judge(least=0)


@registry.clause(
    "nothing-immortal",
    "A process killed at any driver call of an append leaves nothing that never expires.",
    incident="RPUSH and EXPIRE as two calls: a crash between them leaves a key that stays for ever.",
    needs=["processes", "ttl"],
    weight=2,
)
def nothing_immortal(kit: Kit) -> None:
    sessions: dict[str, int] = {}

    def killed_at(n: int, session: str) -> bool:
        store = kit.open("killed", watched=True, ttl=1.0)
        store.worker.send(store.job(Step("append", session, (kit.turn(),)), stop=Stop(n, "kill")))
        died = _died(kit, store)
        if died:
            sessions[session] = n
        return died

    if not stop_at_every_call(kit, killed_at):
        sessions = _killed_at_random(kit)
    reader = kit.open("reader", ttl=1.0)
    by = time.monotonic() + 1.0 + 3.0
    alive = dict(sessions)
    while alive and time.monotonic() < by:
        for session in list(alive):
            if reader.take(Step("read", session)).value == []:
                del alive[session]
        time.sleep(0.05)
    kit.notes.append(f"{len(sessions)} processes killed")
    for session, n in alive.items():
        where = f"at driver call {n} of" if n else "in"
        kit.broken(f"killed {where} an append, it is still there 4 s later, with a ttl of 1 s", session=session)


def _killed_at_random(kit: Kit) -> dict[str, int]:
    """Kill processes at random moments of an append, for targets without a visible driver call."""
    sessions: dict[str, int] = {}
    for _ in range(8):
        session = kit.session()
        store = kit.open("killed", ttl=1.0)
        store.worker.send(store.job(Step("append", session, (kit.turn(),))))
        time.sleep(kit.dice.uniform(0, 0.003))  # some part of the call; which one is left to chance
        store.kill()
        sessions[session] = 0
    return sessions
