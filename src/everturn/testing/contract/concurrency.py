"""Clauses of concurrency: processes, threads and tasks at once, in random rounds.

Races of every two operations, at every point, are in races.py.
"""

from __future__ import annotations

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import ENOUGH, NO_LOSS, Kit
from everturn.testing.races.random_rounds import run_rounds, shared_rounds
from everturn.testing.races.sweep import modes, stop_at_every_call
from everturn.testing.workers.messages import Done, Opened, Paused, Step, Stop

registry = ClauseRegistry("concurrency")
AT_ONCE = 20  # turns that are read at once by somebody who read just before
CONCURRENT = ("appends", "processes|threads|tasks")


# --- random rounds ---------------------------------------------------------------------------------------------------


@registry.clause(
    "processes-lose-nothing",
    "Turns that several processes store in one session at once are all kept, each of them once.",
    incident="LangChain FileChatMessageHistory: of 6 x 40 turns most fail, acknowledged ones are lost.",
    needs=["appends", "processes"],
    weight=4,
)
def processes_lose_nothing(kit: Kit) -> None:
    kit.judge(*NO_LOSS, events=shared_rounds(kit, "processes"))


@registry.clause(
    "threads-lose-nothing",
    "Turns that several threads store in one session at once are all kept, each of them once.",
    incident="Strands 1.62.0: an index from an in-memory counter, and two workers write the same file.",
    needs=["appends", "threads"],
    weight=3,
)
def threads_lose_nothing(kit: Kit) -> None:
    kit.judge(*NO_LOSS, events=shared_rounds(kit, "threads"))


@registry.clause(
    "tasks-lose-nothing",
    "Turns that several tasks of an event loop store in one session at once are all kept, each of them once.",
    incident="await between the read and the write of a list: two requests of one worker are enough to lose a turn.",
    needs=["appends", "tasks"],
    weight=3,
)
def tasks_lose_nothing(kit: Kit) -> None:
    kit.judge(*NO_LOSS, events=shared_rounds(kit, "tasks"))


@registry.clause(
    "whole-turns",
    "Turns of concurrent writers never interleave, and no reader sees part of one.",
    incident="LangChain Redis and Postgres histories: 195 and 21 of 240 turns of concurrent writers interleaved.",
    needs=[*CONCURRENT, "whole_turns"],
)
def whole_turns(kit: Kit) -> None:
    for mode in modes(kit):
        kit.judge("torn", events=shared_rounds(kit, mode))


@registry.clause(
    "writers-keep-their-order",
    "The turns of one writer come in the order in which it stored them, and no turn changes its place later.",
    incident="Google ADK 2.13.0: order by timestamp, and clocks of two machines differ.",
    needs=CONCURRENT,
)
def writers_keep_their_order(kit: Kit) -> None:
    for mode in modes(kit):
        kit.judge("misordered", "non_prefix", events=shared_rounds(kit, mode))


@registry.clause(
    "reads-are-fresh",
    "Whoever reads after a turn was acknowledged sees it: the writer itself and everybody else, without waiting.",
    incident="A read replica, a cache of five seconds: the agent answers without what the user has just said.",
    needs=CONCURRENT,
)
def reads_are_fresh(kit: Kit) -> None:
    for mode in modes(kit):
        kit.judge("stale", events=shared_rounds(kit, mode))
    reader, writer = kit.borrow("reader"), kit.borrow("writer")
    session = kit.session()
    for _ in range(AT_ONCE):  # a busy machine lets a cache of a moment run out between most of these calls
        reader.read(session)
        writer.append(session, kit.turn())
        reader.read(session)
    kit.judge("stale")


@registry.clause(
    "random-mix",
    "Whatever several callers do to one session at once, everyone sees what some order of it explains.",
    incident="Two operators and an agent work on one session: one trims, one rolls back, the agent writes.",
    needs=[*CONCURRENT, "clear|trim|rollback"],
    weight=3,
)
def random_mix(kit: Kit) -> None:
    def plan(kit: Kit, session: str, who: str) -> tuple[Step, ...]:
        if who == "reader":
            return tuple(Step("read", session) for _ in range(4))
        steps = [Step("append", session, (kit.turn(),)) for _ in range(3)]
        if who == "writer 1" and kit.offers("clear"):
            steps.insert(kit.dice.randrange(4), Step("clear", session))
        if who == "writer 2" and kit.offers("trim"):
            steps.insert(kit.dice.randrange(4), Step("trim", session, (6,)))
        return tuple(steps)

    for mode in modes(kit):
        run_rounds(kit, mode, plan, rounds=8 if kit.quick else 20)
    kit.judge()


@registry.clause(
    "many-sessions",
    "Callers that work on many sessions at once lose nothing, and nothing strays into another session.",
    incident="A connection's current session kept in a global: under load, turns land in whoever was served last.",
    needs=CONCURRENT,
    weight=2,
)
def many_sessions(kit: Kit) -> None:
    names: list[str] = []
    written: set[str] = set()

    def plan(kit: Kit, _session: str, who: str) -> tuple[Step, ...]:
        chosen = kit.dice.choices(names, k=6)
        if who == "reader":
            return tuple(Step("read", name) for name in chosen)
        written.update(chosen)
        return tuple(Step("append", name, (kit.turn(),)) for name in chosen)

    for mode in modes(kit):
        names[:] = [kit.session() for _ in range(12)]
        written.clear()
        last = run_rounds(kit, mode, plan, rounds=5)
        last.values(*(Step("read", name) for name in sorted(written)))
    kit.judge(*NO_LOSS)


# --- one of several wins ---------------------------------------------------------------------------------------------


@registry.clause(
    "keyed-at-once",
    "Of several calls with one key at the same time, one is stored.",
    incident="An impatient client and its proxy both retry: check-then-insert lets both through.",
    needs=["appends", "processes", "key"],
)
def keyed_at_once(kit: Kit) -> None:
    stores = [kit.borrow(f"writer {number}") for number in range(1, 5)]
    for number in range(10):
        session, turn = kit.session(), kit.turn()
        for store in stores:
            store.worker.send(store.job(Step("append", session, (turn,), {"key": f"k{number}"})))
        for store in stores:
            kit.report(store.worker, Done)
        stores[0].read(session)
    kit.judge()


@registry.clause(
    "one-version-one-winner",
    "Of several changes that name the same version at the same time, at most one is made.",
    incident="The version is compared before the write and not in it: both pass, and one is lost.",
    needs=["appends", "processes", "expected_version"],
)
def one_version_one_winner(kit: Kit) -> None:
    stores = [kit.borrow(f"writer {number}") for number in range(1, 5)]
    for _ in range(10):
        session = kit.session()
        version = stores[0].append(session, kit.turn())
        for store in stores:
            store.worker.send(store.job(Step("append", session, (kit.turn(),), {"expected_version": version})))
        won = [kit.report(store.worker, Done).outcomes[0][0].ok for store in stores]
        stores[0].read(session)
        kit.check(sum(won) <= 1, f"{sum(won)} of 4 changes that expected version {version} were made", session=session)
    kit.judge()


@registry.clause(
    "sees-later-writes",
    "An instance that has read a session before sees what another process does to it later.",
    incident="A list cached at the first read: a worker that was up before the others never sees their turns.",
    needs=["appends", "processes"],
)
def sees_later_writes(kit: Kit) -> None:
    early, late = kit.borrow("A"), kit.borrow("B")
    session, turns = kit.session(), kit.turns(4)
    early.append(session, turns[0])
    kit.same(late.read(session), turns[:1], "another process stored one turn", session=session)
    early.append(session, turns[1])
    kit.same(late.read(session), turns[:2], "another process stored one more turn", session=session)
    late.append(session, turns[2])
    kit.same(early.read(session), turns[:3], "another process stored one more turn", session=session)
    if kit.offers("clear"):
        early.clear(session)
        kit.same(late.read(session), [], "another process cleared the session", session=session)
        late.append(session, turns[3])
        kit.same(early.read(session), turns[3:], "another process stored a turn after the clear", session=session)
        fresh = kit.turn()  # as many messages as before: a cache that compares their number takes it for the old turn
        late.clear(session)
        late.append(session, fresh)
        story = "another process cleared the session and stored as many messages as it had"
        kit.same(early.read(session), [fresh], story, session=session)
    new, turn = kit.session(), kit.turn()
    kit.same(early.read(new), [], "a session that nothing was stored in", session=new)
    late.append(new, turn)
    kit.same(early.read(new), [turn], "another process stored the first turn", session=new)


@registry.clause(
    "open-together",
    "Processes that open a new store at the same time all get one, and lose nothing.",
    incident="Four workers of a fresh deployment create the same table: three crash, or write to one that is replaced.",
    needs=["appends", "processes"],
    weight=2,
)
def open_together(kit: Kit) -> None:
    points = stop_at_every_call(kit, lambda n, session: _opened_meanwhile(kit, session, n))
    kit.notes.append(f"one process stopped at {points} driver calls of opening, while another opened and stored")
    stored = 0
    for number in range(8):  # a store that refuses late writers acknowledges few turns
        if number >= 3 and stored >= ENOUGH:
            break
        stored += _four_at_once(kit)
    kit.judge(*NO_LOSS)


def _opened_meanwhile(kit: Kit, session: str, n: int) -> bool:
    """Stop one process at its n-th driver call in opening a new store, and let another open it and store a turn.
    Returns False if opening ended before that call."""
    place = kit.place()
    late, early = kit.worker(watched=True), kit.worker()
    late.send(kit.opening("late", place, stop=Stop(n)))
    report = kit.any_report(late)
    early.send(kit.opening("early", place))
    blocked = not early.poll(min(max(0.05, 4 * kit.environment.open_seconds), 1.0))
    if blocked and isinstance(report, Paused):
        late.resume()  # it holds a lock that the other waits for
    first = kit.adopt(early, "early", place, "early", kit.report(early, Opened))
    first.append(session, kit.turn())
    if not blocked and isinstance(report, Paused):
        late.resume()
    opened = report if isinstance(report, Opened) else kit.report(late, Opened)
    second = kit.adopt(late, "late", place, "late", opened)
    for store in (second, first):
        store.append(session, kit.turn())
        store.read(session)
    for store in (second, first):
        store.close()
        kit.release(store.worker)
    return isinstance(report, Paused)


def _four_at_once(kit: Kit) -> int:
    """Let four processes open one new store and store in it. Returns how many turns were acknowledged."""
    place, session = kit.place(), kit.session()
    workers = [kit.worker() for _ in range(4)]
    for worker in workers:
        worker.send(kit.opening("together", place))
    opened = [kit.report(worker, Opened) for worker in workers]
    stores = [
        kit.adopt(worker, "together", place, "together", one) for worker, one in zip(workers, opened, strict=True)
    ]
    for store in stores:
        store.worker.send(store.job(*(Step("append", session, (kit.turn(),)) for _ in range(2))))
    stored = sum(one.ok for store in stores for one in kit.report(store.worker, Done).outcomes[0])
    stores[0].read(session)
    for store in stores:
        store.close()
        kit.release(store.worker)
    return stored


@registry.clause(
    "snapshot-is-a-cut",
    "A snapshot taken while others write is a state the session was in: whole turns, in order, with nothing left out.",
    incident="A snapshot reads page by page while turns come in: it has a turn that follows one which it has not.",
    needs=["appends", "processes", "save_snapshot", "rollback"],
    weight=2,
)
def snapshot_is_a_cut(kit: Kit) -> None:
    writers = [kit.borrow(f"writer {number}") for number in range(1, 4)]
    reader = kit.borrow("reader")
    for _ in range(4 if kit.quick else 8):
        session = kit.session()
        for store in writers:
            store.worker.send(store.job(*(Step("append", session, (kit.turn(),)) for _ in range(4))))
        taken = [reader.take(Step("save_snapshot", session)) for _ in range(3)]
        for store in writers:
            kit.report(store.worker, Done)
        reader.read(session)
        for outcome in taken:
            if outcome.ok:
                reader.rollback(session, outcome.value)
                reader.read(session)
    kit.judge()
