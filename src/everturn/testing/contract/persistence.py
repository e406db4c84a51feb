"""Clauses of persistence: stored data outlives the instance, its process, and a kill."""

from __future__ import annotations

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import succeeded
from everturn.testing.workers.messages import CallerSteps, Done, ForkProcess, Step

registry = ClauseRegistry("persistence")


@registry.clause(
    "another-process",
    "What one process has stored, another reads at once.",
    incident="A store that keeps what it wrote in memory until it is closed: the next worker finds nothing.",
    needs=["processes"],
)
def another_process(kit: Kit) -> None:
    writer, session, turns = kit.open("A"), kit.session(), kit.turns(3)
    for turn in turns:
        writer.append(session, turn)
    kit.same(kit.open("B").read(session), turns, "another process stored three turns", session=session)


@registry.clause(
    "handover",
    "A stores and leaves, B goes on and leaves, C reads it all: three processes, one after the other.",
    incident="A conversation that wanders from worker to worker begins anew at each of them.",
    needs=["processes"],
)
def handover(kit: Kit) -> None:
    session, turns = kit.session(), kit.turns(6)
    for name, part in (("A", turns[:3]), ("B", turns[3:])):
        store = kit.open(name)
        for turn in part:
            store.append(session, turn)
        store.close()
    kit.same(kit.open("C").read(session), turns, "two processes stored three turns each, and left", session=session)


@registry.clause(
    "plain-process",
    "A plain `python -c` that knows nothing of the writer reads what it stored.",
    incident="It works among workers forked from one parent, and in no cron job: the data was in the parent's memory.",
    needs=["processes"],
)
def plain_process(kit: Kit) -> None:
    writer, session, turns = kit.open("A"), kit.session(), kit.turns(3)
    for turn in turns:
        writer.append(session, turn)
    (outcome,) = kit.take_in_fresh_process(writer.place, Step("read", session))
    kit.check(outcome.ok, f"reading from a plain process raised {outcome.fault}", session=session)
    kit.same(outcome.value, turns, "another process stored three turns", session=session)


@registry.clause(
    "reopen",
    "A store that was closed and opened again holds what it held.",
    incident="CREATE TABLE without IF NOT EXISTS behind a DROP: every deployment begins with an empty memory.",
    needs=["processes"],
)
def reopen(kit: Kit) -> None:
    store, session, turns = kit.open(), kit.session(), kit.turns(4)
    other = kit.open("B")  # keeps the process, so that it is the same one that opens again
    for number, turn in enumerate(turns):
        store.append(session, turn)
        store.close()
        store = kit.open("A", beside=other, at=other.place)
        kit.same(store.read(session), turns[: number + 1], f"it was reopened {number + 1} times", session=session)


@registry.clause(
    "second-instance",
    "Two instances in one process see each other's turns, and closing one leaves the other open.",
    incident="One connection for the whole module: the first to close it closes it for all.",
    needs=["processes"],
)
def second_instance(kit: Kit) -> None:
    one, session, turns = kit.open("A"), kit.session(), kit.turns(4)
    other = kit.open("B", beside=one)
    one.append(session, turns[0])
    kit.same(other.read(session), turns[:1], "another instance stored a turn", session=session)
    other.append(session, turns[1])
    kit.same(one.read(session), turns[:2], "another instance stored one more", session=session)
    one.close()
    other.append(session, turns[2])
    kit.same(other.read(session), turns[:3], "the other instance was closed", session=session)


@registry.clause(
    "left-by-a-kill",
    "What a process has stored is there after it was killed with -9, and the store can be written to again.",
    incident="A lock file that nobody removes: after one crash, no worker starts any more.",
    needs=["processes"],
)
def left_by_a_kill(kit: Kit) -> None:
    session, turns = kit.session(), kit.turns(6)
    for number in (0, 2, 4):
        store = kit.open("A")
        for turn in turns[number : number + 2]:
            store.append(session, turn)
        store.kill()
        kit.same(
            kit.open("B").read(session), turns[: number + 2], "the process that stored was killed", session=session
        )


@registry.clause(
    "changes-persist",
    "What was cleared or trimmed stays so for every process that comes later.",
    incident="A clear that empties the cache and not the disk: after the next deployment the conversation is back.",
    needs=["processes", "clear|trim"],
)
def changes_persist(kit: Kit) -> None:
    store = kit.open("A")
    cleared, trimmed = kit.session(), kit.session()
    turns = kit.turns(4)
    for session in (cleared, trimmed):
        for turn in kit.turns(2) + turns:
            store.append(session, turn)
        turns = kit.turns(4)
    expected = {}
    if kit.offers("clear"):
        store.clear(cleared)
        expected[cleared] = store.read(cleared)
    if kit.offers("trim"):
        store.trim(trimmed, 2 * len(turns[0]))
        expected[trimmed] = store.read(trimmed)
    store.close()
    for name in ("B", "C"):
        later = kit.open(name)
        for session, history in expected.items():
            kit.check(
                later.read(session) == history,
                "a process that came later sees more, or less, than what was left after a clear or trim",
                session=session,
            )


@registry.clause(
    "snapshots-persist",
    "A saves a snapshot, B rolls back to it, C rolls back to it again: three processes, and the snapshot is there.",
    incident="The rollback of a refactored MemoryManager wipes the snapshots; the unit test, in one process, is green.",
    needs=["processes", "save_snapshot", "rollback"],
)
def snapshots_persist(kit: Kit) -> None:
    session, turns, more = kit.session(), kit.turns(3), kit.turns(3)
    store = kit.open("A")
    for turn in turns:
        store.append(session, turn)
    snapshot = store.save_snapshot(session)
    store.append(session, more[0])
    store.close()
    for name, turn in (("B", more[1]), ("C", more[2])):
        store = kit.open(name)
        store.rollback(session, snapshot)
        kit.same(store.read(session), turns, f"{name} rolled back to A's snapshot", session=session)
        store.append(session, turn)
        store.close()
    kit.same(kit.open("D").read(session), [*turns, more[2]], "C rolled back and stored a turn", session=session)


@registry.clause(
    "keys-persist",
    "A retry with the same key stores nothing again, also from another process.",
    incident="Keys remembered in memory: the worker that timed out is replaced, and its successor appends again.",
    needs=["processes", "key"],
)
def keys_persist(kit: Kit) -> None:
    session, turn = kit.session(), kit.turn()
    store = kit.open("A")
    store.append(session, turn, key="request-1")
    store.kill()
    for name in ("B", "C"):
        other = kit.open(name)
        other.append(session, turn, key="request-1")
        kit.same(other.read(session), [turn], f"{name} retried what A had stored", session=session)


@registry.clause(
    "undo-persists",
    "What one process has rolled back or cleared, another can undo.",
    incident="An undo list in memory: the operator who could take it back is on another machine.",
    needs=["processes", "undo", "clear"],
)
def undo_persists(kit: Kit) -> None:
    session, turns = kit.session(), kit.turns(2)
    store = kit.open("A")
    for turn in turns:
        store.append(session, turn)
    store.clear(session)
    store.close()
    other = kit.open("B")
    other.call("undo", session)
    kit.same(kit.open("C").read(session), turns, "A cleared, B took it back", session=session)


@registry.clause(
    "fork",
    "A process that has the store open may fork: the child opens its own, both go on, and nothing is lost.",
    incident="Gunicorn --preload over SQLite: the parent closes, the WAL goes, and the child's turns go with it.",
    needs=["appends", "processes"],
    weight=2,
)
def fork(kit: Kit) -> None:
    for _ in range(3):
        parent, session = kit.open("parent"), kit.session()
        parent.append(session, kit.turn())
        child = kit.unique_name("child")
        alone = (*_appends(kit, session, 2), Step("read", session))
        job = ForkProcess(
            parent.slot,
            kit.opening("child", parent.place),
            CallerSteps(parent.name, _appends(kit, session, 3)),
            CallerSteps(child, _appends(kit, session, 3)),
            CallerSteps(child, alone),
            kit.record(parent.worker),
        )
        *_, after = kit.ask(parent.worker, job, Done).outcomes
        kit.check(after, "the child could not open the store, or has died", session=session)
        succeeded(alone, after)
        kit.open("reader").read(session)
    kit.judge()


def _appends(kit: Kit, session: str, number: int) -> tuple[Step, ...]:
    return tuple(Step("append", session, (kit.turn(),)) for _ in range(number))
