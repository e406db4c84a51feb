"""Clauses of instances that go on after a fault: a lock not had, a full disk, writes that a server refuses.

recovery.py has replies that come late, restarts and cancelled tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everturn.testing.contract.faults import HUNG, attempt, open_with_timeout, session_with_turns
from everturn.testing.contract.recovery import answers_again
from everturn.testing.faults import files
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import Ended, Race, Sweep
from everturn.testing.servers import PostgresServer, ValkeyServer
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Done, Step

registry = ClauseRegistry("faults", since=2)
BUSY = 6.5  # seconds; the time-out of Python's sqlite3 is 5
REFUSED_BY = 3.0  # seconds in which open connections learn that their server refuses writes

Fault = Callable[[Kit, Instance, str], bool]
"""Lets a fault happen to a store during calls on a session, and ends it. Returns whether a call was refused."""


def _file_locked(kit: Kit, store: Instance, session: str) -> bool:
    databases = [path for path in sorted(store.place.rglob("*")) if path.is_file() and files.is_sqlite(path)]
    if not databases:
        return False
    with files.Locks(databases) as locks:
        step = Step("append", session, (kit.turn(),))
        if kit.offers("timeout"):
            return not attempt(kit, store, step, relieve=locks.release)[0].ok
        store.worker.send(store.job(step))
        store.worker.poll(HUNG if kit.quick else BUSY)
        locks.release()
        return not kit.report(store.worker, Done).outcomes[0][0].ok


def _disk_full(kit: Kit, store: Instance, session: str) -> bool:
    del session
    store.limit("fsize", 0)
    # Not recorded, and so in a session of its own: the record of the calls is a file of the same process.
    outcome = store.take_unrecorded(Step("append", kit.session(), (kit.turn(),)))
    store.limit("fsize", None)
    return not outcome.ok


@contextmanager
def _refusing(server: ValkeyServer | PostgresServer) -> Iterator[None]:
    server.refuse_writes(refuse=True)
    try:
        yield
    finally:
        server.refuse_writes(refuse=False)


def _writes_refused(kit: Kit, store: Instance, session: str) -> bool:
    server = next(iter(kit.environment.servers.values()))
    if not isinstance(server, ValkeyServer | PostgresServer):
        return False  # a stand-in of DynamoDB refuses no writes
    refused, ends = False, time.monotonic() + REFUSED_BY
    with _refusing(server):
        while not refused and time.monotonic() < ends:
            refused = not store.take(Step("append", session, (kit.turn(),))).ok
    ends = time.monotonic() + REFUSED_BY
    # A server that takes writes again tells its connections a moment later: somebody new is not refused by then.
    while refused and time.monotonic() < ends:
        if kit.open("new").take(Step("append", session, (kit.turn(),))).ok:
            break
    return refused


@registry.clause(
    "after-a-fault",
    "After a lock that was not had, a full disk or a server that refused writes, the same instance goes on by itself.",
    incident="database is locked, once, in a transaction that nobody rolls back: the worker fails until its restart.",
    needs=["appends", "private", "files|server"],
    weight=2,
)
def after_a_fault(kit: Kit) -> None:
    faults: dict[str, Fault] = {"its file was locked": _file_locked, "the disk was full": _disk_full}
    if kit.offers("server"):
        if not hasattr(next(iter(kit.environment.servers.values())), "refuse_writes"):
            raise NotOffered("the stand-in that runs here cannot be told to refuse writes")
        faults = {"its server refused writes": _writes_refused}
    seen: list[str] = []
    for what, happen in faults.items():
        store, session = session_with_turns(kit)
        if not happen(kit, store, session):
            continue
        seen.append(what)
        for _ in range(2):
            answers_again(kit, store, Step("append", session, (kit.turn(),)), f"{what} for a while")
            answers_again(kit, store, Step("read", session), f"{what} for a while")
        # Whatever the failed call left open must be in nobody's way.
        other = open_with_timeout(kit, "other")
        answers_again(kit, other, Step("append", session, (kit.turn(),)), f"{what} for another instance")
        store.read(session)
    if not seen:
        raise NotOffered("no call was refused: it waits, or its files are another process's")
    kit.notes.append("; ".join(seen))
    kit.judge(least=3)


@registry.clause(
    "refused-beside-append",
    "A turn that is stored while another call on the same instance is refused is kept.",
    incident="aiosqlite, one connection for all tasks: the rollback after one user's bad message takes another's turn.",
    needs=["appends", "threads|tasks"],
    weight=2,
)
def refused_beside_append(kit: Kit) -> None:
    sweep = Sweep(kit, "tasks" if kit.offers("tasks") else "threads")
    refused = 0

    def prepare(reader: Instance) -> Race:
        session = kit.session()
        reader.append(session, kit.turn())
        *first, last = kit.turn()
        odd = (*first, SentMessage(last.role, frozenset({last.content})))  # no codec but pickle takes a set
        return Race(session, (Step("append", session, (kit.turn(),)),), (Step("append", session, (odd,)),))

    def after(reader: Instance, session: str, ended: list[Ended]) -> None:
        nonlocal refused
        refused += not ended[-1][1].ok
        reader.read(session)

    sweep.run(prepare, after, may_fail=True)
    if not refused:
        raise NotOffered("no call of the kit was refused")
    kit.notes.append(f"{sweep.describe()}; {refused} refused")
    kit.judge(least=3)
