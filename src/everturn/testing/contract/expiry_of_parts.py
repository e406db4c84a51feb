"""Clauses of the expiry of everything that belongs to a session: after every operation, and its snapshots and keys.

All sessions are observed at the same time, once in a run, to save waiting. expiry.py has the times.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from everturn.testing.contract.expiry import GRACE, TTLS
from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Done, Outcome, Paused, Step, Stop

registry = ClauseRegistry("edge", since=2)
READS = 12  # of expired sessions, each stopped at another point
LONG = 600.0  # seconds
WAITING = 0.5  # seconds, before an append is taken to wait for a lock
LAST = ("append", "trim", "clear", "save_snapshot", "rollback", "undo", "replace", "pop", "delete_snapshot")


class PartsRecord(msgspec.Struct):
    """Observations of one session for each operation that came last, after all of them must have expired."""

    ttl: float
    sessions: dict[str, str]  # by operation
    changed: float  # when the last change had ended
    last: dict[str, Outcome]  # reads
    snapshot: Any  # of the session whose last operation was save_snapshot
    rolled_back: Outcome | None = None  # a rollback to it, after expiry,
    after_rollback: Outcome | None = None  # and what is read then
    listed: Outcome | None = None  # snapshots of that session, after expiry
    keyed: Outcome | None = None  # a turn with other content and a key of the life before,
    after_key: Outcome | None = None  # what is read then,
    turn: tuple[SentMessage, ...] = ()  # and what it was


def parts_record(kit: Kit) -> PartsRecord:
    for ttl in TTLS if "expiry of parts" not in kit.environment.shared_results else ():
        try:
            kit.environment.shared_results["expiry of parts"] = _observe(kit, ttl)
            break
        except Untested:  # a session expired while it was prepared
            if ttl == TTLS[-1]:
                raise
    found: PartsRecord = kit.environment.shared_results["expiry of parts"]
    if not all(read.ok and read.value == [] for name, read in found.last.items() if name == "append"):
        raise Untested("nothing expires, not even a session that was only appended to; see not-never")
    return found


def _observe(kit: Kit, ttl: float) -> PartsRecord:
    store = kit.open("A", at=kit.place(), ttl=ttl)
    sessions: dict[str, str] = {}
    snapshot = None
    for operation in LAST:
        if operation == "append" or kit.offers(operation):
            sessions[operation] = session = kit.session()
            made = _changed_last_by(kit, store, session, operation, ttl)
            snapshot = made if operation == "save_snapshot" else snapshot
    if kit.offers("key"):
        store.append(sessions["append"], kit.turn(), key="of this life")
    changed = time.monotonic()
    last: dict[str, Outcome] = {}
    while True:
        last = {name: store.take(Step("read", session)) for name, session in sessions.items()}
        gone = all(outcome.ok and outcome.value == [] for name, outcome in last.items() if name != "clear")
        if (gone and time.monotonic() > changed + ttl) or time.monotonic() > changed + ttl + GRACE:
            break
        time.sleep(0.05)
    record = PartsRecord(ttl, sessions, changed, last, snapshot)
    if snapshot is not None:
        session = sessions["save_snapshot"]
        if kit.offers("list_snapshots"):
            record.listed = store.take(Step("list_snapshots", session))
        record.rolled_back = store.take(Step("rollback", session, (snapshot,)))
        record.after_rollback = store.take(Step("read", session))
    if kit.offers("key"):
        record.turn = kit.turn()
        record.keyed = store.take(Step("append", sessions["append"], (record.turn,), {"key": "of this life"}))
        record.after_key = store.take(Step("read", sessions["append"]))
    return record


def _changed_last_by(kit: Kit, store: Instance, session: str, operation: str, ttl: float) -> Any:
    """Store turns and let this operation be the last change. Returns its value. The session may expire on the way."""
    turns = kit.turns(3)
    steps = [Step("append", session, (turn,)) for turn in turns]
    handle = None
    if operation in {"rollback", "delete_snapshot"}:
        store.values(*steps[:2])
        handle = store.save_snapshot(session)
        steps = steps[2:]
    if operation == "undo":
        steps.append(Step("clear", session) if kit.offers("clear") else Step("trim", session, (len(turns[0]),)))
    arguments = {
        "trim": (len(turns[0]),),
        "rollback": (handle,),
        "delete_snapshot": (handle,),
        "replace": (kit.turn(),),
    }
    if operation != "append":
        steps.append(Step(operation, session, arguments.get(operation, ())))
    outcomes = store.run(*steps)
    if not all(outcome.ok for outcome in outcomes):
        fault = next(outcome.fault for outcome in outcomes if not outcome.ok)
        raise Untested(f"with a ttl of {ttl:g} s, {operation} raised {fault}; a busy machine may be too slow for it")
    return outcomes[-1].value


@registry.clause(
    "expires-after-every-change",
    "A session expires after its last change, whichever operation that was.",
    incident="A trim by DEL and RPUSH drops the EXPIRE: every session that was ever trimmed stays for ever.",
    needs=["ttl", "trim|clear|save_snapshot|rollback|undo|replace|pop|delete_snapshot"],
)
def expires_after_every_change(kit: Kit) -> None:
    seen = parts_record(kit)
    for operation, read in seen.last.items():
        kit.check(
            read.ok and read.value == [],
            f"its last change was {operation}, {read.began - seen.changed:.1f} s ago, with a ttl of {seen.ttl:g} s; it "
            f"still gives {read.fault or len(read.value)}",
            session=seen.sessions[operation],
        )


@registry.clause(
    "snapshots-expire",
    "Snapshots expire with their session: none is listed, and none brings back what expired.",
    incident="The messages have a TTL and the snapshots do not: a deleted conversation comes back by its snapshot.",
    needs=["ttl", "save_snapshot", "rollback"],
)
def snapshots_expire(kit: Kit) -> None:
    seen = parts_record(kit)
    session = seen.sessions["save_snapshot"]
    assert seen.rolled_back is not None  # noqa: S101 - needs
    assert seen.after_rollback is not None  # noqa: S101
    kit.check(
        not seen.rolled_back.ok or seen.after_rollback.value == [],
        "the session had expired, and a rollback to its snapshot brought it back",
        session=session,
    )
    if seen.listed is not None and seen.listed.ok:
        kit.check(
            not seen.listed.value, f"the session had expired, and has snapshots {seen.listed.value!r}", session=session
        )


@registry.clause(
    "keys-expire",
    "A key of a session that expired means nothing to the session of that name that begins anew.",
    incident="Keys kept for ever beside sessions of an hour: the first request of the next day is taken for a retry.",
    needs=["ttl", "key"],
)
def keys_expire(kit: Kit) -> None:
    seen = parts_record(kit)
    session = seen.sessions["append"]
    assert seen.keyed is not None  # noqa: S101 - needs
    assert seen.after_key is not None  # noqa: S101
    kit.check(seen.keyed.ok, f"a key of the life before is not free again: {seen.keyed.fault}", session=session)
    kit.check(seen.after_key.ok, f"reading raised {seen.after_key.fault}", session=session)
    kit.same(seen.after_key.value, [seen.turn], "a turn with a key of the life before", session=session)


@registry.clause(
    "expired-while-read",
    "A turn that is stored while somebody reads the session that has just expired is kept.",
    incident="'It has expired, so delete it', in a transaction of its own: a user came back in between, and is gone.",
    needs=["ttl", "appends", "processes"],
    weight=2,
)
def expired_while_read(kit: Kit) -> None:
    """Stop reads of expired sessions at every driver call, let others append meanwhile, and let the reads go on."""
    place = kit.place()
    reader = kit.open("reader", at=place, watched=True, ttl=TTLS[0])
    other = kit.open("other", at=place, ttl=LONG)  # what it stores is there however slow the machine is
    sessions = [kit.session() for _ in range(READS if kit.quick else 2 * READS)]
    for session in sessions:
        reader.append(session, kit.turn())
    gone_by = time.monotonic() + TTLS[0] + GRACE
    while reader.read(sessions[-1]) and time.monotonic() < gone_by:
        time.sleep(0.05)
    time.sleep(0.1)
    points = 0
    for n, session in enumerate(sessions[:-1], 1):
        kit.replays[session] = kit.clause.id
        reader.worker.send(reader.job(Step("read", session), stop=Stop(n)))
        paused = isinstance(kit.any_report(reader.worker), Paused)
        turn = kit.turn()
        appended = Step("append", session, (turn,))
        other.worker.send(other.job(appended))
        waits = paused and not other.worker.poll(WAITING)  # for a lock of the read
        if paused:
            reader.worker.resume()
            kit.report(reader.worker, Done)
        outcome = kit.report(other.worker, Done).outcomes[0][0]
        found = other.read(session)
        if outcome.ok:
            where = f"at driver call {n}{', which it had to wait for' if waits else ''}" if paused else "after it"
            story = f"the session had expired, and a turn was stored during a read, {where}"
            kit.same(found[-len(turn) :], [turn], story, session=session)
        points += paused
        if not paused:
            break
    kit.notes.append(f"a read of an expired session was stopped at {points} points")
