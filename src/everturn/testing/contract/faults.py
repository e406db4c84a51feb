"""Clauses of faults of a server: down, hung, slow or full, replies that are lost. Files are in file_faults.py.

A fault must become an error: never silence, never an empty list, never a false acknowledgement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from everturn.testing.faults.proxy import Afterwards
from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import NO_LOSS, Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.controller import JobFailed
from everturn.testing.workers.messages import CallerSteps, Do, Done, Outcome, SideBySide, Step

registry = ClauseRegistry("faults")
TIMEOUT = 0.5  # seconds that are given to a factory that takes `timeout`
OPENINGS = 3  # tries, each of which took as long as it was given
IN_TIME = TIMEOUT + 4.5  # a busy machine is late, too
AFTERWARDS: tuple[Afterwards, ...] = ("close", "silence")
LAST_REQUESTS = 3
FAILURES, FAILING = 12, 1.5  # calls while the backend is down, and the seconds that they may take
HUNG = 0.5  # seconds that a backend hangs, where no time-out is offered


def open_with_timeout(kit: Kit, name: str = "A") -> Instance:
    """Open an instance with a time-out of TIMEOUT, if the target takes one.

    On a busy machine even opening may take so long: then it is tried again.
    """
    if not kit.offers("timeout"):
        return kit.open(name)
    for _ in range(OPENINGS - 1):
        began = time.monotonic()
        try:
            return kit.open(name, timeout=TIMEOUT)
        except JobFailed:
            if time.monotonic() - began < TIMEOUT / 2:
                raise  # it was not the time
    return kit.open(name, timeout=TIMEOUT)


def session_with_turns(kit: Kit, turns: int = 3) -> tuple[Instance, str]:
    store, session = open_with_timeout(kit), kit.session()
    for _ in range(turns):
        store.append(session, kit.turn())
    return store, session


def attempt(kit: Kit, store: Instance, *steps: Step, relieve: Callable[[], None] | None = None) -> tuple[Outcome, ...]:
    """Take steps during a fault. `relieve` ends the fault when they should long have failed, or after a while if the
    target takes no time-out."""
    store.worker.send(store.job(*steps))
    long_enough = IN_TIME + 0.5 if kit.offers("timeout") else HUNG
    if relieve is not None and not store.worker.poll(long_enough):
        relieve()
    return kit.report(store.worker, Done).outcomes[0]


def check_in_time(kit: Kit, outcomes: tuple[Outcome, ...], what: str) -> None:
    if kit.offers("timeout"):
        for outcome in outcomes:
            took = outcome.ended - outcome.began
            kit.check(took <= IN_TIME, f"{what}, a call took {took:.1f} s, though its time-out was {TIMEOUT:g} s")


def judge_later(kit: Kit, session: str) -> None:
    """Judge after the fault: another process must find everything acknowledged, and nothing that was not written."""
    kit.open("later").read(session)
    kit.judge(least=3)


# --- servers ---------------------------------------------------------------------------------------------------------


@contextmanager
def faulty_proxy(kit: Kit) -> Iterator[Any]:
    """Get the proxy in front of the server; restore it at the end of the block."""
    (option, proxy), *_ = kit.environment.proxies.items()
    kit.environment.shared_place.close()  # instances that wait there are connected through the proxy too
    try:
        yield proxy
    finally:
        kit.environment.servers[option].resume()
        proxy.restore()


@registry.clause(
    "backend-down",
    "While the backend is down, reading and storing are errors; nothing is empty, and nothing is acknowledged.",
    incident="except ConnectionError: return []. The bot greets a customer of three years as a new one.",
    needs=["server", "private"],
)
def backend_down(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    reader = open_with_timeout(kit, "reader")
    reader.read(session)  # what it has seen is no answer later: there is one more turn by then
    store.append(session, kit.turn())
    with faulty_proxy(kit) as proxy:
        proxy.refuse()
        proxy.cut()
        outcomes = attempt(
            kit,
            store,
            Step("read", session),
            Step("append", session, (kit.turn(),)),
            Step("read", session),
            relieve=proxy.restore,
        )
        outcomes += attempt(kit, reader, *[Step("read", session)] * 2, relieve=proxy.restore)
        ends = time.monotonic() + FAILING
        while len(outcomes) < FAILURES and time.monotonic() < ends:  # a circuit breaker opens after some failures
            outcomes += attempt(kit, reader, Step("read", session), relieve=proxy.restore)
    check_in_time(kit, outcomes, "with the backend down")
    for outcome in outcomes:
        kit.check(
            not (outcome.ok and outcome.value == []), "with the backend down, a session of three turns read as empty"
        )
    judge_later(kit, session)


@registry.clause(
    "backend-hung",
    "A backend that takes requests and does not answer makes calls fail, in time, and not succeed.",
    incident="A frozen Redis and no socket time-out: every worker waits, and the whole service is down.",
    needs=["server", "private"],
)
def backend_hung(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    with faulty_proxy(kit) as proxy:
        server = next(iter(kit.environment.servers.values()))
        server.pause()
        outcomes = attempt(
            kit, store, Step("append", session, (kit.turn(),)), Step("read", session), relieve=server.resume
        )
        del proxy
    check_in_time(kit, outcomes, "with the backend hung")
    judge_later(kit, session)


@registry.clause(
    "backend-slow",
    "A backend that answers late changes nothing about what is stored: each turn once, or an error.",
    incident="A client that gives up and tries again while the first request is still under way: two copies.",
    needs=["server", "private"],
)
def backend_slow(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    with faulty_proxy(kit) as proxy:
        proxy.delay(0.15)
        attempt(kit, store, *(Step("append", session, (kit.turn(),)) for _ in range(3)), Step("read", session))
    judge_later(kit, session)


@registry.clause(
    "reply-swallowed",
    "A turn whose acknowledgement was lost on the way is stored once, or not at all, and never twice.",
    incident="redis-py 8.1.0 retries ten times by default: one rpush with a late reply stores the item twice (#3554).",
    needs=["server", "private"],
    weight=2,
)
def reply_swallowed(kit: Kit) -> None:
    session = kit.session()
    seen = [_lose_reply_to_words(kit, session, then) for then in AFTERWARDS]
    if not all(seen) and not _lose_any_reply(kit, session):
        raise Untested("no request of an append was seen on the wire")
    kit.judge(least=3)


def _lose_reply_to_words(kit: Kit, session: str, then: Afterwards) -> bool:
    """Lose the reply to the request that holds the turn's words. Returns False if no request does."""
    store = open_with_timeout(kit)
    store.append(session, kit.turn())
    store.append(session, kit.turn())
    turn = kit.turn()
    with faulty_proxy(kit) as proxy:
        swallowed = proxy.swallowed
        proxy.swallow_next_reply(matching=str(turn[0].content).encode(), then=then)
        attempt(kit, store, Step("append", session, (turn,)), relieve=proxy.cut)
        seen = bool(proxy.swallowed > swallowed)
    kit.open("later").read(session)
    return seen


def _lose_any_reply(kit: Kit, session: str) -> int:
    """Lose the reply to each of the last requests of an append: one of them has the turn, compressed or encrypted.

    Returns how many were lost.
    """
    lost = 0
    for then in AFTERWARDS:
        for last in range(LAST_REQUESTS):
            store = open_with_timeout(kit)
            store.append(session, kit.turn())
            with faulty_proxy(kit) as proxy:
                before = proxy.requests
                store.append(session, kit.turn())
                requests = proxy.requests - before
                if last >= requests:
                    break
                swallowed = proxy.swallowed
                proxy.swallow_next_reply(then=then, after=requests - 1 - last)
                attempt(kit, store, Step("append", session, (kit.turn(),)), relieve=proxy.cut)
                lost += proxy.swallowed - swallowed
            kit.open("later").read(session)
    kit.notes.append(f"the words of a turn are not on the wire as they are; {lost} replies to any request were lost")
    return lost


@registry.clause(
    "connections-cut",
    "Connections that are cut while several write lose nothing that was acknowledged, and double nothing.",
    incident="A load balancer that closes idle connections, a pool that hands them out.",
    needs=["server", "private", "appends"],
    weight=2,
)
def connections_cut(kit: Kit) -> None:
    stores = [open_with_timeout(kit, f"writer {number}") for number in range(1, 4)]
    session = kit.session()
    for _ in range(3):
        with faulty_proxy(kit) as proxy:
            for store in stores:
                turns = [kit.turn() for _ in range(4)]
                # One cut of each writer falls between the server's work and its answer, where a blind retry doubles.
                proxy.swallow_next_reply(matching=str(turns[2][0].content).encode(), then="close")
                store.worker.send(store.job(*(Step("append", session, (turn,)) for turn in turns)))
            for _ in range(2):
                stores[0].worker.poll(kit.dice.uniform(0, 0.01))
                proxy.cut()
            for store in stores:
                kit.report(store.worker, Done)
        kit.open("later").read(session)
    kit.judge(*NO_LOSS, least=3)


@registry.clause(
    "server-full",
    "A server without memory left refuses turns loudly, and keeps those it had acknowledged.",
    incident="maxmemory reached at night: RPUSH fails, the except clause logs at debug level, turns are gone.",
    needs=["redis_url", "server", "private"],
)
def server_full(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    server = kit.environment.servers["redis_url"]
    used = int(server.info("memory")["used_memory"])
    server.command("CONFIG", "SET", "maxmemory", used + 200_000)
    try:
        large = [
            tuple(SentMessage(sent.role, f"{sent.content} {'x' * 30_000}") for sent in kit.turn()) for _ in range(12)
        ]
        outcomes = attempt(kit, store, *(Step("append", session, (turn,)) for turn in large), Step("read", session))
    finally:
        server.command("CONFIG", "SET", "maxmemory", 0)
    kit.notes.append(f"{sum(not one.ok for one in outcomes)} of {len(outcomes)} calls were refused")
    judge_later(kit, session)


@registry.clause(
    "crowd",
    "More callers than there are connections: each is served or told, and no turn is dropped in silence.",
    incident="A pool that runs dry: the write is skipped, with a warning in a log that nobody reads.",
    needs=["server", "private", "appends", "threads|tasks"],
    weight=2,
)
def crowd(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    mode: SideBySide = "tasks" if kit.offers("tasks") else "threads"
    callers = tuple(
        CallerSteps(kit.unique_name("caller"), tuple(Step("append", session, (kit.turn(),)) for _ in range(2)))
        for _ in range(40)
    )
    with faulty_proxy(kit) as proxy:
        proxy.delay(0.03)
        store.worker.send(Do(store.slot, callers, mode, record=kit.record(store.worker)))
        kit.report(store.worker, Done)
    judge_later(kit, session)
