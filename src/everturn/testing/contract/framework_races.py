"""Clauses of races and kills of what only frameworks have: pending writes, subgraphs, events with state.

frameworks.py has what comes out when one caller does them; pops.py has pop, replace and deletions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import Ended, Race, Sweep, SweepMode, stop_at_every_call
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Step, Stop

registry = ClauseRegistry("concurrency", since=2)


def killed(kit: Kit, plan: Callable[[str], Step], after: Callable[[str], None]) -> None:
    """Kill a process at every driver call of a step that is planned for a session, then look at what is left."""

    def killed_at(n: int, session: str) -> bool:
        step = plan(session)
        store = kit.open("killed", watched=True)
        store.worker.send(store.job(step, stop=Stop(n, "kill")))
        try:
            kit.report(store.worker, Done)
            died = False
            store.close()
        except WorkerDied:
            died = True
        after(session)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")


def _modes(kit: Kit) -> list[SweepMode]:
    return ["processes", "tasks"] if kit.offers("tasks") else ["processes"]


# --- LangGraph -------------------------------------------------------------------------------------------------------


@registry.clause(
    "killed-in-put-writes",
    "A process killed at any driver call of put_writes leaves all writes of the task or none, and a retry has all.",
    incident="Writes put one by one: a task has half of them after a crash, counts as done, and never runs again.",
    needs=["pending_writes", "processes"],
    weight=2,
)
def killed_in_put_writes(kit: Kit) -> None:
    reader = kit.open("reader")
    values = tuple(f"write {number}" for number in range(8))
    wanted = [("task-1", value) for value in values]

    def plan(session: str) -> Step:
        reader.append(session, kit.turn())
        return Step("put_writes", session, ("task-1", values))

    def after(session: str) -> None:
        found = reader.call("pending_writes", session)
        kit.check(
            found in ([], wanted),
            f"killed in put_writes of {len(values)} writes: {[value for _, value in found]} are there",
            session=session,
        )
        reader.call("put_writes", session, "task-1", values)
        found = reader.call("pending_writes", session)
        kit.check(found == wanted, f"killed in put_writes, then put again: there are {found}", session=session)

    killed(kit, plan, after)


@registry.clause(
    "writes-beside-writes",
    "Writes that two tasks put at once are all kept, wherever one of them is stopped.",
    incident="Writes of a step in one value that is read, extended and stored: the tool that had paid runs once more.",
    needs=["pending_writes", "processes"],
    weight=2,
)
def writes_beside_writes(kit: Kit) -> None:
    def prepare(reader: Instance) -> Race:
        session = kit.session()
        reader.append(session, kit.turn())
        stopped, passing = (Step("put_writes", session, (task, (f"{task} a", f"{task} b"))) for task in ("1", "2"))
        return Race(session, (stopped,), (passing,))

    def after(reader: Instance, session: str, ended: list[Ended]) -> None:
        found = reader.call("pending_writes", session)
        wanted = {(step.args[0], value) for step, outcome in ended if outcome.ok for value in step.args[1]}
        kit.check(
            wanted <= set(found) and len(found) == len(set(found)),
            f"two tasks put writes at once; {sorted(wanted)} were acknowledged, and {found} are there",
            session=session,
        )

    _sweep(kit, prepare, after)


@registry.clause(
    "subgraphs-at-once",
    "A thread and its subgraph, or two subgraphs, put checkpoints at once, and neither takes away the other's.",
    incident="One row for a thread and all its namespaces: while the subgraph runs, its parent's messages are gone.",
    needs=["subgraphs", "processes"],
    weight=2,
)
def subgraphs_at_once(kit: Kit) -> None:
    def prepare(reader: Instance) -> Race:
        session = kit.session()
        reader.call("append_in", session, "", kit.turn())
        return Race(
            session,
            (Step("append_in", session, ("", kit.turn())),),
            (Step("append_in", session, ("a", kit.turn())),),
        )

    def after(reader: Instance, session: str, ended: list[Ended]) -> None:
        for step, outcome in ended:
            namespace, turn = step.args
            found = [seen.content for seen in reader.call("read_in", session, namespace)]
            kit.check(
                not outcome.ok or found[-len(turn) :] == [sent.content for sent in turn],
                f"two namespaces at once: {namespace!r} does not end with what was put there, but {found[-3:]}",
                session=session,
            )

    _sweep(kit, prepare, after)


def _sweep(kit: Kit, prepare: Callable[[Instance], Race], after: Callable[[Instance, str, list[Ended]], None]) -> None:
    for mode in _modes(kit):
        sweep = Sweep(kit, mode)
        sweep.run(prepare, after)
        kit.notes.append(sweep.describe())


# --- Google ADK ------------------------------------------------------------------------------------------------------


@registry.clause(
    "state-at-once",
    "Two events that change the state at once are both there with what they changed, or one of them is refused.",
    incident="The state of a session is read, merged and written back: of two tools at once, the cart of one is lost.",
    needs=["state", "processes"],
    weight=2,
)
def state_at_once(kit: Kit) -> None:
    def prepare(reader: Instance) -> Race:
        session = kit.session()
        reader.call("append_state", session, kit.turn(), {"first": 1})
        return Race(session, (_event(kit, session, "a"),), (_event(kit, session, "b"),))

    _sweep(kit, prepare, partial(_state_of_all, kit))


def _event(kit: Kit, session: str, name: str) -> Step:
    return Step("append_state", session, (kit.turn(), {name: f"by {name}"}))


def _state_of_all(kit: Kit, reader: Instance, session: str, ended: list[Ended]) -> None:
    state = reader.call("state", session) or {}
    contents = [seen.content for seen in reader.read(session)]
    for step, outcome in ended:
        turn, changes = step.args
        is_there = turn[0].content in contents
        has_state = changes.items() <= state.items()
        calls = "; ".join(f"{one.args[1]} {'ok' if done.ok else done.fault}" for one, done in ended)
        kit.check(
            is_there == has_state and (is_there or not outcome.ok),
            f"events with state, at once: {calls}. The event of {changes} is {'there' if is_there else 'not there'}, "
            f"and the state is {state}",
            session=session,
        )


@registry.clause(
    "killed-in-append-event",
    "A process killed at any driver call of append_event leaves the event and its state, or neither.",
    incident="The event is committed, and then the state: after a crash the order is in the history alone.",
    needs=["state", "processes"],
    weight=2,
)
def killed_in_append_event(kit: Kit) -> None:
    reader = kit.open("reader")
    steps: dict[str, Step] = {}

    def plan(session: str) -> Step:
        reader.call("append_state", session, kit.turn(), {"first": 1})
        steps[session] = _event(kit, session, "killed")
        return steps[session]

    def after(session: str) -> None:
        turn, changes = steps[session].args
        state = reader.call("state", session) or {}
        is_there = turn[0].content in [seen.content for seen in reader.read(session)]
        kit.check(
            is_there == (changes.items() <= state.items()) and state.get("first") == 1,
            f"killed in append_event: the event is {'there' if is_there else 'not there'}, and the state is {state}",
            session=session,
        )
        reader.call("append_state", session, kit.turn(), {"after": 1})

    killed(kit, plan, after)
