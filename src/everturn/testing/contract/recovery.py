"""Clauses of recovery: what comes after a fault. Late replies, restarts, dry pools, failed transactions, cancellation.

A fault may be an error. Afterwards the same instance answers again, by itself, and everybody gets their own history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from everturn.testing.contract.faults import HUNG, TIMEOUT, attempt, faulty_proxy, judge_later, open_with_timeout
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, describe_step
from everturn.testing.kit.kit import NO_LOSS, Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import stop_at_every_call
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import CallerSteps, Cancel, Do, Done, SideBySide, Step

registry = ClauseRegistry("faults", since=2)
OPERATIONS = ("read", "append", "save_snapshot", "rollback", "trim", "replace", "clear")
READS = ("latest", "list_snapshots")
REMOVALS = ("pop", "delete_message", "undo")
TRIES = 4  # calls after a fault, of which the last must succeed
CALLERS = 30
ARRIVAL = 0.02  # seconds in which a late reply reaches a client on the same machine


def answers_again(kit: Kit, store: Instance, step: Step, what: str) -> Any:
    """Take a step after a fault, a few times if it is refused. Returns its value; Broken if it never succeeds."""
    outcome = store.take(step)
    for _ in range(TRIES - 1):
        if outcome.ok:
            break
        time.sleep(ARRIVAL)
        if step.op in {"append", "replace"}:  # one that raised may have landed: the next has words of its own
            step = msgspec.structs.replace(step, args=(kit.turn(),))
        outcome = store.take(step)
    kit.check(outcome.ok, f"{what}, and {describe_step(step)} still fails: {outcome.fault}", session=step.session)
    return outcome.value


def operations(kit: Kit) -> list[str]:
    """List the operations that are offered, reads included; those that remove come last."""
    return [name for name in OPERATIONS if kit.offers(name)]


def step_of(kit: Kit, store: Instance, operation: str, session: str) -> Step:
    """Make a call of an operation, for a session with two turns or more."""
    match operation:
        case "append" | "replace":
            return Step(operation, session, (kit.turn(),))
        case "rollback":
            return Step("rollback", session, (store.save_snapshot(session),))
        case "trim":
            return Step("trim", session, (2 * len(kit.turn()),))
        case "latest":
            return Step("latest", session, (2,))
        case _:
            return Step(operation, session)


def _session(kit: Kit, store: Instance, turns: int = 2) -> tuple[str, Sequence[tuple[SentMessage, ...]]]:
    session, stored = kit.session(), kit.turns(turns)
    store.values(*(Step("append", session, (turn,)) for turn in stored))
    return session, stored


# --- servers ---------------------------------------------------------------------------------------------------------


@registry.clause(
    "late-reply",
    "A reply that comes after the call was given up is nobody's: the next reader gets the history of its own session.",
    incident="ChatGPT, 20 March 2023: a reply left on a pooled Redis connection, and users saw the chats of others.",
    needs=["server", "private", "timeout"],
    weight=2,
)
def late_reply(kit: Kit) -> None:
    store = open_with_timeout(kit)
    other, theirs = _session(kit, store)
    session, _ = _session(kit, store, turns=3)
    server = next(iter(kit.environment.servers.values()))
    for operation in operations(kit)[: 2 if kit.quick else None]:
        step = step_of(kit, store, operation, session)
        with faulty_proxy(kit):
            server.pause()
            attempt(kit, store, step, relieve=server.resume)
            server.resume()
            time.sleep(ARRIVAL)
        for _ in range(2):
            found = answers_again(kit, store, Step("read", other), f"the reply to {step.op} came late")
            kit.same(found, theirs, f"the reply to {step.op} of another session came late", session=other)
    judge_later(kit, session)


@registry.clause(
    "server-restarted",
    "A store that was open while its server was restarted answers again by itself, in every operation.",
    incident="The script cache of Redis is empty after a failover: NOSCRIPT, until every pod was restarted by hand.",
    needs=["server", "private"],
    weight=2,
)
def server_restarted(kit: Kit) -> None:
    store = open_with_timeout(kit)
    session, turns = _session(kit, store)
    once = _session(kit, store)[0]
    for operation in operations(kit):  # so that all that is made at the first call has been made
        store.value(step_of(kit, store, operation, once))
    (option, server), *_ = kit.environment.servers.items()
    with faulty_proxy(kit):
        if option == "redis_url":
            server.command("SAVE")  # it has no other memory of before the restart
        elif not getattr(server, "is_durable", True):
            raise NotOffered("the stand-in that runs here keeps its data in memory")
        server.restart()
    found = answers_again(kit, store, Step("read", session), "its server was restarted")
    kit.same(found, turns, "its server was restarted", session=session)
    for operation in operations(kit):
        answers_again(kit, store, step_of(kit, store, operation, session), "its server was restarted")
    kit.judge(least=3)


@registry.clause(
    "pool-dry",
    "Callers for whom no connection is left for longer than they wait are told, and later ones are served again.",
    incident="A connection that is lost with every time-out: after ten of them the pool is empty, until a restart.",
    needs=["server", "private", "appends", "threads|tasks"],
    weight=2,
)
def pool_dry(kit: Kit) -> None:
    store = open_with_timeout(kit)
    session, _ = _session(kit, store)
    mode: SideBySide = "tasks" if kit.offers("tasks") else "threads"
    callers = tuple(
        CallerSteps(kit.unique_name("caller"), (Step("append", session, (kit.turn(),)),)) for _ in range(CALLERS)
    )
    server = next(iter(kit.environment.servers.values()))
    with faulty_proxy(kit):
        server.pause()
        store.worker.send(Do(store.slot, callers, mode, record=kit.record(store.worker)))
        store.worker.poll(4 * TIMEOUT if kit.offers("timeout") else HUNG)
        server.resume()
        kit.report(store.worker, Done)
    again = tuple(
        CallerSteps(kit.unique_name("caller"), (Step("append", session, (kit.turn(),)),)) for _ in range(CALLERS)
    )
    answers_again(kit, store, Step("read", session), "its pool was dry for a while")
    outcomes = kit.ask(store.worker, Do(store.slot, again, mode, record=kit.record(store.worker)), Done).outcomes
    answered = sum(one.ok for each in outcomes for one in each)
    kit.check(answered, f"its pool was dry for a while, and then {CALLERS} of {CALLERS} callers were refused")
    judge_later(kit, session)


@registry.clause(
    "cut-in-commit",
    "A connection that is cut between a COMMIT and its answer leaves the change made once, or not at all.",
    incident="A retry around the whole transaction: the COMMIT had arrived, and the refund is in the history twice.",
    needs=["server", "private"],
    weight=2,
)
def cut_in_commit(kit: Kit) -> None:
    changes = [name for name in operations(kit) if name != "read"]
    cuts = 0
    for name in changes:
        store = open_with_timeout(kit)
        session, _ = _session(kit, store, turns=3)
        step = step_of(kit, store, name, session)
        with faulty_proxy(kit) as proxy:
            before = proxy.swallowed
            for words in (b"COMMIT", b"commit", b"EXEC", b"TransactWriteItems"):
                proxy.swallow_next_reply(matching=words, then="close")
            attempt(kit, store, step, relieve=proxy.cut)
            cuts += proxy.swallowed > before
            proxy.restore()
        if not cuts and name != "append":
            break
        what = f"the connection was cut in the COMMIT of {name}"
        answers_again(kit, store, Step("append", session, (kit.turn(),)), what)
        answers_again(kit, store, Step("read", session), what)
    if not cuts:
        raise NotOffered("no COMMIT or EXEC is sent: a change is one request")
    kit.notes.append(f"cut in {cuts} of {len(changes)} operations")
    kit.judge(least=3)


# --- errors and cancellation -----------------------------------------------------------------------------------------


@registry.clause(
    "after-an-error",
    "After a call that was refused, the next one on the same instance works, in this session and in others.",
    incident="InFailedSqlTransaction: one message with a NUL byte, and every later call of the worker fails.",
    needs=["appends"],
)
def after_an_error(kit: Kit) -> None:
    store = kit.open()
    session, _ = _session(kit, store)
    other, theirs = _session(kit, store)
    for what, step in _likely_refused(kit, session):
        refused = store.take_unrecorded(step).fault
        if refused is None:
            continue  # it is stored in the session of its own
        story = f"{what} was refused ({refused.kind})"
        answers_again(kit, store, Step("append", session, (kit.turn(),)), story)
        store.read(session)
        kit.same(store.read(other), theirs, f"{story} in another session", session=other)
    kit.open("later").read(session)
    kit.judge(least=3)


def _likely_refused(kit: Kit, session: str) -> list[tuple[str, Step]]:
    """List calls that a store may refuse. Contents that it may accept go to sessions of their own."""
    odd: list[tuple[str, Any]] = [("a lone surrogate", "\ud800"), ("a NUL", "a\0b"), ("an object", object())]
    steps = [
        (f"a turn with {what}", Step("append", kit.session(), ((*turn[:-1], SentMessage(turn[-1].role, content)),)))
        for what, content in odd
        if (turn := kit.turn())
    ]
    if kit.offers("rollback"):
        steps.append(("a rollback to no snapshot", Step("rollback", session, ("no-such-snapshot",))))
    if kit.offers("expected_version"):
        steps.append(("a stale version", Step("append", session, (kit.turn(),), {"expected_version": 10**6})))
    return steps


@registry.clause(
    "cancelled-calls",
    "A task that is cancelled at any await of any operation, reads included, disturbs nobody: all others go on.",
    incident="A cancelled GET leaves its reply on the connection: the next user is shown the previous one's chat.",
    needs=["tasks", "appends"],
    weight=2,
)
def cancelled_calls(kit: Kit) -> None:
    store, cancelled = kit.open(), 0
    other, theirs = _session(kit, store)

    def cancelled_at(operation: str, n: int, session: str) -> bool:
        store.values(*(Step("append", session, (kit.turn(),)) for _ in range(3)))
        step = step_of(kit, store, operation, session)
        job = Cancel(store.slot, CallerSteps(store.name, (step,)), n, kit.record(store.worker))
        done = kit.ask(store.worker, job, Done)
        what = f"{step.op} was cancelled at its {n}. await"
        found = answers_again(kit, store, Step("read", other), what)
        kit.same(found, theirs, f"{what}, in another session", session=other)
        answers_again(kit, store, Step("append", session, (kit.turn(),)), what)
        store.read(session)
        return done.stops >= n

    def cancelled_removal_at(operation: str, n: int, session: str) -> bool:
        """Cancel what no history knows: the session is not recorded, and only the others are looked at."""
        for _ in range(3):
            store.take_unrecorded(Step("append", session, (kit.turn(),)))
        step = Step(operation, session, (0,) if operation == "delete_message" else ())
        done = kit.ask(store.worker, Cancel(store.slot, CallerSteps(store.name, (step,)), n), Done)
        what = f"{step.op} was cancelled at its {n}. await"
        for _ in range(2):
            store.take_unrecorded(Step("read", session))  # by turns: replies that are one too late show
            found = answers_again(kit, store, Step("read", other), what)
            kit.same(found, theirs, f"{what}, in another session", session=other)
        return done.stops >= n

    for operation in [*operations(kit), *(name for name in READS if kit.offers(name))]:
        cancelled += stop_at_every_call(kit, partial(cancelled_at, operation), by="awaits")
    for operation in [name for name in REMOVALS if kit.offers(name)]:
        cancelled += stop_at_every_call(kit, partial(cancelled_removal_at, operation), by="awaits")
    kit.notes.append(f"cancelled at {cancelled} awaits")
    kit.judge(*NO_LOSS, least=3)
