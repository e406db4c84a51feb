"""Clauses of faults: a backend that is down, hung, slow, full, out of handles, or holds garbage.

A fault must become an error: never silence, never an empty list, never a false acknowledgement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everturn.testing.faults import files
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import NO_LOSS, Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.controller import JobFailed
from everturn.testing.workers.messages import CallerSteps, Do, Done, FactoryHook, Outcome, Ready, SideBySide, Step

registry = ClauseRegistry("faults")
TIMEOUT = 0.5  # seconds that are given to a factory that takes `timeout`
OPENINGS = 3  # tries, each of which took as long as it was given
IN_TIME = TIMEOUT + 4.5  # a busy machine is late, too
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
    for then in ("close", "silence"):
        store = open_with_timeout(kit)
        store.append(session, kit.turn())
        store.append(session, kit.turn())
        turn = kit.turn()
        with faulty_proxy(kit) as proxy:
            swallowed = proxy.swallowed
            proxy.swallow_next_reply(matching=str(turn[0].content).encode(), then=then)
            attempt(kit, store, Step("append", session, (turn,)), relieve=proxy.cut)
            if proxy.swallowed == swallowed:
                raise Untested("no request with the turn's words in it was seen on the wire")
        kit.open("later").read(session)
    kit.judge(least=3)


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


# --- files -----------------------------------------------------------------------------------------------------------


@registry.clause(
    "disk-full",
    "On a full disk storing is an error, and what was acknowledged before is there.",
    incident="A JSON file rewritten in place on a full disk: the old history is cut off, and the new one not written.",
    needs=["files"],
)
def disk_full(kit: Kit) -> None:
    store, session = session_with_turns(kit, turns=5)
    largest = max((path.stat().st_size for path in _files(store.place)), default=0)
    store.limit("fsize", largest + 64 * 1024)
    padded = [tuple(SentMessage(sent.role, f"{sent.content} {'x' * 4000}") for sent in kit.turn()) for _ in range(30)]
    outcomes = store.run(*(Step("append", session, (turn,)) for turn in padded), Step("read", session))
    store.limit("fsize", None)
    refused = sum(not outcome.ok for outcome in outcomes)
    kit.notes.append(f"{refused} of {len(outcomes)} calls failed")
    if not refused:
        raise Untested(f"{len(padded)} turns of {len(padded[0]) * 4} kB fitted into 64 kB: what it writes is not seen")
    store.take(Step("append", session, (kit.turn(),)))
    judge_later(kit, session)


@registry.clause(
    "no-file-handles",
    "Without file handles left, reading and storing work or are errors; nothing is empty, and nothing is lost.",
    incident="except OSError: return []. Too many open files, and every conversation begins anew.",
    needs=["files"],
)
def no_file_handles(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    store.limit("nofile", 0)
    steps = (Step("read", session), Step("append", session, (kit.turn(),)), Step("read", session))
    outcomes = store.run(*steps)
    for outcome in outcomes:
        kit.check(
            not (outcome.ok and outcome.value == []), "without file handles, a session of three turns read as empty"
        )
    beside = None
    try:
        beside = kit.open("B", beside=store)
    except JobFailed:
        pass  # it said so
    if beside is not None:
        read = beside.take_unrecorded(Step("read", session))  # there is no handle for a record either
        kit.check(
            not (read.ok and read.value == []), "opened without file handles, a session of three turns read as empty"
        )
    store.limit("nofile", None)
    judge_later(kit, session)


@registry.clause(
    "file-locked",
    "While somebody else holds the write lock, a turn waits or fails; it is not acknowledged and forgotten.",
    incident="database is locked, caught and ignored: under load every tenth turn is missing.",
    needs=["files"],
)
def file_locked(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    databases = [path for path in _files(store.place) if files.is_sqlite(path)]
    if not databases:
        raise NotOffered("there is no SQLite file that could be locked")
    with files.Locks(databases) as locks:
        outcomes = attempt(
            kit, store, Step("append", session, (kit.turn(),)), Step("read", session), relieve=locks.release
        )
    check_in_time(kit, outcomes, "with the file locked")
    store.take(Step("read", session))
    judge_later(kit, session)


# --- garbage ---------------------------------------------------------------------------------------------------------


@registry.clause(
    "garbage",
    "Stored bytes that were overwritten are an error to whoever reads them: no shorter history, no other words.",
    incident="OpenAI Agents 0.24.0 skips corrupt rows in silence; pickle that fails to load comes back as [].",
    needs=["processes", "files|corrupt"],
)
def garbage(kit: Kit) -> None:
    if kit.offers("corrupt"):
        _overwritten(kit, b"")
        return
    # The first is no UTF-8, the second is, and ends whatever JSON string it is in.
    for byte in (b"\xff", b'"'):
        _overwritten(kit, byte)


def readable(kit: Kit, place: Path, session: str) -> list[ReadMessage]:
    """Read the session in another process before the damage. If that fails, a later error would prove nothing."""
    before = kit.open("before", at=place)
    found = before.read(session)
    before.close()
    return found


def _overwritten(kit: Kit, byte: bytes) -> None:
    session, marker = kit.session(), "a marker that is overwritten later: 0123456789abcdef"
    place = kit.place()
    store = kit.open(at=place)
    store.append(session, kit.turn())
    turn = kit.turn()
    store.append(session, (SentMessage(turn[0].role, marker), *turn[1:]))
    store.append(session, kit.turn())
    before = len(readable(kit, place, session))
    store.close()
    if kit.offers("corrupt"):
        kit.ask(kit.worker(), FactoryHook("corrupt", str(place), session, kit.environment.urls), Ready)
    elif not files.overwrite(_files(place), marker.encode(), byte):
        raise Untested("the words are not found in the store's files as they are; give the factory a `corrupt`")
    later = kit.open_or_none("later", at=place)
    if later is None:
        return  # it said so
    read = later.take(Step("read", session))
    kit.check(
        not read.ok,
        f"one of {before} messages was overwritten, and reading gave {len(read.value or ())} messages and no error",
        session=session,
    )


@registry.clause(
    "half-a-file",
    "A file of which the end is missing is an error, never a shorter or an empty history.",
    incident="A copy that was interrupted, a restore from it: the store opens, and half of the users are new.",
    needs=["files"],
)
def half_a_file(kit: Kit) -> None:
    session, marker = kit.session(), "a marker in the file that is cut: 0123456789abcdef"
    store = kit.open()
    place = store.place
    for _ in range(40):
        store.append(session, kit.turn())
    turn = kit.turn()
    store.append(session, (SentMessage(turn[0].role, marker), *turn[1:]))
    whole = readable(kit, place, session)
    store.close()
    if not files.cut(_files(place), marker.encode()):
        raise Untested("the words are not found in the store's files as they are")
    later = kit.open_or_none("later", at=place)
    if later is None:
        return  # it said so
    read = later.take(Step("read", session))
    kit.check(
        not read.ok or read.value == whole,
        f"half of its file is missing, and reading gave {len(read.value or ())} of {len(whole)} messages and no error",
        session=session,
    )


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())
