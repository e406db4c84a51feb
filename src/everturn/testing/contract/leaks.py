"""Clauses of leaks: file handles, connections, threads and memory after many calls, and after many faults."""

from __future__ import annotations

import time
from collections.abc import Sequence

from everturn.core.numbers import size
from everturn.testing.contract.faults import faulty_proxy
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import CallerSteps, Do, Done, Measure, Step, Usage

registry = ClauseRegistry("faults", since=2)
CALLS, QUICK_CALLS = 2000, 400
FAULTS, QUICK_FAULTS = 200, 60
FIRST_CALLS = 60  # a store may open, start and keep this and that for its first calls
SESSIONS = 5
THREADS = 8  # side by side
A_JOB = 100  # calls of one job
ENOUGH_SECONDS = 4.0  # for the calls or faults that are more than those of a quick run
LARGE, LARGE_TURNS = 30_000, 100  # characters of a message, and turns of them
OTHERS_EVERY = 8  # appends
MORE = 12  # handles, connections or threads that may be there in addition: pools grow
MORE_MEMORY = 8_000_000  # bytes that may be there in addition: Python frees memory late
MEMORY_OF_A_CALL = 8_000  # bytes that may be there in addition for each call


@registry.clause(
    "leaks-in-calls",
    "After thousands of calls a process has no more handles, connections, threads and memory than after the first.",
    incident="A connection for each call that nobody closes: too many open files, every afternoon at four.",
    needs=["private"],
    weight=2,
)
def leaks_in_calls(kit: Kit) -> None:
    store = kit.open()
    calls = QUICK_CALLS if kit.quick else CALLS
    sessions = [kit.session() for _ in range(SESSIONS)]
    _call(kit, store, sessions, FIRST_CALLS)
    before = _usage(kit, store)
    done, enough = 0, time.monotonic() + ENOUGH_SECONDS
    while done < calls and (done < QUICK_CALLS or time.monotonic() < enough):
        _call(kit, store, sessions, A_JOB)
        done += A_JOB
    _compare(kit, before, _usage(kit, store), done, "calls")
    if kit.offers("clear") and kit.offers("processes"):
        _remember(kit, store, sessions[0])
        small = _usage(kit, store)
        _remember(kit, store, sessions[0])
        large = _usage(kit, store)
        size_of_all = LARGE_TURNS * LARGE * len(kit.turn())
        kit.check(
            large.memory - small.memory <= size_of_all // 2,
            f"{size(size_of_all)} of turns were stored and cleared again, and the process has "
            f"{size(large.memory - small.memory)} more of memory",
        )
    kit.notes.append(f"{done} calls")


@registry.clause(
    "leaks-in-faults",
    "After hundreds of failed calls a process has no more handles, connections and threads than before them.",
    incident="The error path returns before the connection is closed: a bad night, and no handle is left by morning.",
    needs=["private"],
    weight=2,
)
def leaks_in_faults(kit: Kit) -> None:
    store, session = kit.open(), kit.session()
    _call(kit, store, [session], FIRST_CALLS)
    before = _usage(kit, store)
    faults, enough = 0, time.monotonic() + ENOUGH_SECONDS
    for number in range(0, QUICK_FAULTS if kit.quick else FAULTS, 10):
        faults += _refused(kit, store, session)
        if kit.offers("server"):
            with faulty_proxy(kit) as proxy:
                proxy.cut()
                store.worker.send(_job(store, [Step("read", session)] * 5))
                proxy.cut()
                faults += sum(not outcome.ok for outcome in kit.report(store.worker, Done).outcomes[0])
        if kit.offers("processes"):
            beside = kit.open("opened and closed", beside=store)
            beside.take_unrecorded(Step("read", session))
            beside.close()
        if number >= QUICK_FAULTS and time.monotonic() > enough:
            break
    if not faults:
        raise NotOffered("no call of the kit was refused, and there is no server whose connections could be cut")
    _call(kit, store, [session], 10)
    _compare(kit, before, _usage(kit, store), faults, "calls that failed")
    kit.notes.append(f"{faults} calls failed")


@registry.clause(
    "leaks-of-threads",
    "Threads that call an instance and end leave no handle, connection or thread behind.",
    incident="A connection for each thread, in a dict: a server that has a thread for each request has them all.",
    needs=["private", "threads"],
)
def leaks_of_threads(kit: Kit) -> None:
    store = kit.open()
    sessions = [kit.session() for _ in range(THREADS)]
    _in_threads(kit, store, sessions, 3)
    before = _usage(kit, store)
    jobs = 10 if kit.quick else 40
    _in_threads(kit, store, sessions, jobs)
    _compare(kit, before, _usage(kit, store), 2 * THREADS * jobs, f"calls of {THREADS * jobs} threads that are gone")
    kit.notes.append(f"{THREADS * jobs} threads")


def _in_threads(kit: Kit, store: Instance, sessions: Sequence[str], jobs: int) -> None:
    """Call the instance in as many new threads as there are sessions, so many times."""
    for _ in range(jobs):
        callers = tuple(
            CallerSteps(f"thread {number}", (Step("append", session, (kit.turn(),)), Step("read", session)))
            for number, session in enumerate(sessions, 1)
        )
        kit.ask(store.worker, Do(store.slot, callers, "threads"), Done)


OTHERS = ("latest", "save_snapshot", "list_snapshots", "trim", "pop", "replace", "delete_message", "undo")


def _others(kit: Kit, session: str) -> list[Step]:
    """List a call of every other operation that is offered."""
    arguments = {"latest": (2,), "trim": (2 * len(kit.turn()),), "replace": (kit.turn(),), "delete_message": (0,)}
    return [Step(name, session, arguments.get(name, ())) for name in OTHERS if kit.offers(name)]


def _remember(kit: Kit, store: Instance, session: str) -> None:
    """Store large turns and clear them again: a store that keeps what was cleared in memory grows by megabytes."""
    for _ in range(LARGE_TURNS // 10):
        turns = [
            tuple(SentMessage(sent.role, f"{sent.content} {'x' * LARGE}") for sent in kit.turn()) for _ in range(10)
        ]
        steps = [*(Step("append", session, (turn,)) for turn in turns), Step("clear", session)]
        kit.ask(store.worker, _job(store, steps), Done)


def _job(store: Instance, steps: Sequence[Step]) -> Do:
    return Do(store.slot, (CallerSteps(store.name, tuple(steps)),))  # not recorded: a record would grow, too


def _call(kit: Kit, store: Instance, sessions: Sequence[str], calls: int) -> None:
    """Make so many calls, appends and reads by turns; then clear, so that no session grows long."""
    steps: list[Step] = []
    for number in range(calls // 2):
        session = sessions[number % len(sessions)]
        steps += [Step("append", session, (kit.turn(),)), Step("read", session)]
        if number % OTHERS_EVERY == 0:
            steps += _others(kit, session)
    if kit.offers("clear"):
        steps += [Step("clear", session) for session in sessions]
    kit.ask(store.worker, _job(store, steps), Done)


def _refused(kit: Kit, store: Instance, session: str) -> int:
    """Make ten calls that a store refuses, if it refuses anything. Returns how many were refused."""
    turn = kit.turn()
    odd = (*turn[:-1], SentMessage(turn[-1].role, object()))
    steps = [Step("append", session, (odd,))] * 5
    if kit.offers("rollback"):
        steps += [Step("rollback", session, ("no-such-snapshot",))] * 5
    outcomes = kit.ask(store.worker, _job(store, steps), Done).outcomes[0]
    return sum(not outcome.ok for outcome in outcomes)


def _usage(kit: Kit, store: Instance) -> Usage:
    return kit.ask(store.worker, Measure(), Usage)


def _compare(kit: Kit, before: Usage, after: Usage, calls: int, what: str) -> None:
    for name in ("handles", "threads"):
        had, has = getattr(before, name), getattr(after, name)
        kit.check(has <= had + MORE, f"after {calls} {what} the process has {has} {name}, and it had {had} before")
    kit.check(
        after.memory - before.memory <= MORE_MEMORY + MEMORY_OF_A_CALL * calls or not kit.offers("processes"),
        f"after {calls} {what} the process has {size(after.memory)} of memory, and it had {size(before.memory)} before",
    )  # a store that lives in memory keeps what it is given
