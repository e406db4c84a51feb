"""Clauses of frameworks: subgraphs and pending writes of LangGraph, applications and state of ADK."""

from __future__ import annotations

from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Done, Step

registry = ClauseRegistry("sequential", since=2)
NAMESPACES = ("", "a", "a|b", "a:1", "a:1|b:2", "b", ":", "|")
AGENTS = ("planner", "writer", "plan", "planner2")
APPLICATIONS = (("kit", "u"), ("kit", "u1"), ("kitu", ""), ("ki", "tu"), ("other", "u"), ("kit:u", "s"), ("kit", "u:s"))


@registry.clause(
    "subgraphs",
    "Namespaces of a thread share nothing, and deleting the thread deletes them all.",
    incident="A checkpointer that ignores checkpoint_ns: the subgraph resumes with the messages of its parent.",
    needs=["subgraphs"],
)
def subgraphs(kit: Kit) -> None:
    store, session, other = kit.borrow(), kit.session(), kit.session()
    written = {(thread, namespace): kit.turns(2) for thread in (session, other) for namespace in NAMESPACES}
    for number in range(2):
        for (thread, namespace), turns in written.items():
            store.call("append_in", thread, namespace, turns[number])
    for (thread, namespace), turns in written.items():
        kit.same(store.call("read_in", thread, namespace), turns, f"namespace {namespace!r}", session=thread)
    if not kit.offers("clear"):
        return
    store.clear(session)
    for (thread, namespace), turns in written.items():
        left = [] if thread == session else turns
        story = f"namespace {namespace!r} of {'the' if thread == session else 'another'} thread, which was deleted"
        kit.same(store.call("read_in", thread, namespace), left, story, session=thread)


@registry.clause(
    "pending-writes",
    "Acknowledged writes of a task are there after its process was killed, in order, and a retry doubles none.",
    incident="put_writes kept in memory until the step is over: after a crash the tool that had paid runs again.",
    needs=["pending_writes", "processes"],
)
def pending_writes(kit: Kit) -> None:
    reader, session = kit.open("reader"), kit.session()
    reader.append(session, kit.turn())
    wanted: list[tuple[str, str]] = []
    for task in ("task-1", "task-2"):
        values = [f"{task} wrote {number}" for number in range(12)]
        store = kit.open("killed")
        for _ in range(2):  # a task that is tried again puts the same writes
            store.call("put_writes", session, task, values)
        store.kill()
        wanted += [(task, value) for value in values]
    found = reader.call("pending_writes", session)
    kit.check(sorted(found) == sorted(wanted), f"{len(wanted)} writes were acknowledged; there are {found}")
    for task in ("task-1", "task-2"):
        of_task = [one for one in found if one[0] == task]
        kit.check(
            of_task == [one for one in wanted if one[0] == task], f"writes of {task} are in another order: {of_task}"
        )
    reader.append(session, kit.turn())
    left = reader.call("pending_writes", session)
    kit.check(not left, f"the next checkpoint has the writes of the one before: {left}")


@registry.clause(
    "pending-writes-at-once",
    "Writes that tasks in several processes put for one step at once are all kept.",
    incident="Pending writes in one column that is read, extended and written back: of four tools at once one is left.",
    needs=["pending_writes", "processes"],
)
def pending_writes_at_once(kit: Kit) -> None:
    stores = [kit.borrow(f"task {number}") for number in range(1, 5)]
    reader = kit.borrow("reader")
    for _ in range(3 if kit.quick else 10):
        session = kit.session()
        reader.append(session, kit.turn())
        for number, store in enumerate(stores):
            steps = (
                Step("put_writes", session, (f"task-{number}-{step}", (f"w{number}.{step}",))) for step in range(4)
            )
            store.worker.send(store.job(*steps))
        acknowledged = sum(one.ok for store in stores for one in kit.report(store.worker, Done).outcomes[0])
        if not acknowledged:
            raise Untested("no write was acknowledged")
        found = reader.call("pending_writes", session)
        kit.check(
            len(set(found)) >= acknowledged, f"{acknowledged} writes were acknowledged, {len(set(found))} are there"
        )


@registry.clause(
    "applications",
    "Sessions of one name that belong to different applications or users share nothing.",
    incident="A key made of app, user and session without separators: two tenants read one conversation.",
    needs=["applications"],
)
def applications(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    written = {}
    for app, user in APPLICATIONS:
        turns = kit.turns(2)
        taken = [store.take(Step("append_as", session, (app, user, turn))) for turn in turns]
        if all(one.ok for one in taken):  # an application or a user may be refused
            written[app, user] = turns
    if len(written) < 2:
        raise Untested(f"of {len(APPLICATIONS)} pairs of an application and a user all but {len(written)} were refused")
    for (app, user), turns in written.items():
        found = store.call("read_as", session, app, user)
        kit.same(found, turns, f"application {app!r}, user {user!r}", session=session)
    if kit.offers("clear"):
        gone = next(iter(written))
        store.call("clear_as", session, *gone)
        for (app, user), turns in written.items():
            found = store.call("read_as", session, app, user)
            left = [] if (app, user) == gone else turns
            kit.same(found, left, f"application {app!r}, user {user!r}, after {gone} was deleted", session=session)


@registry.clause(
    "state-with-events",
    "The state that events change is there with them, for every process, also after a kill.",
    incident="adk-python: state_delta applied to the object in memory and not to the row, so the next worker has none.",
    needs=["state", "processes"],
)
def state_with_events(kit: Kit) -> None:
    reader, session = kit.open("reader"), kit.session()
    turns = kit.turns(4)
    reader.call("append_state", session, turns[0], {"cart": ["a"], "kept": 1})
    if reader.call("state", session) is None:
        raise NotOffered("sessions have no state")
    store = kit.open("killed")
    store.call("append_state", session, turns[1], {"cart": ["a", "b"]})
    store.call("append_state", session, turns[2], {"cart": ["a", "b", "c"], "city": "Bern"})
    store.kill()
    fresh = kit.open("fresh")
    wanted = {"cart": ["a", "b", "c"], "kept": 1, "city": "Bern"}
    for who in (reader, fresh):
        found = who.call("state", session)
        kept = {name: found.get(name) for name in wanted}
        kit.check(kept == wanted, f"{who.name}: the state is {kept}, and the events lead to {wanted}", session=session)
        kit.same(who.read(session), turns[:3], "three events with state", session=session)


@registry.clause(
    "agents-of-a-session",
    "Agents of one session share no messages, and deleting the session deletes those of all.",
    incident="Messages keyed by session and number alone: of two agents, one goes on with the other's thoughts.",
    needs=["agents"],
)
def agents_of_a_session(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    written = {agent: kit.turns(3) for agent in AGENTS}
    for number in range(3):
        for agent, turns in written.items():
            outcome = store.take(Step("append_for", session, (agent, turns[number])))
            kit.check(outcome.ok, f"agent {agent!r} could not store a message: {outcome.fault}", session=session)
    for agent, turns in written.items():
        kit.same(store.call("read_for", session, agent), turns, f"agent {agent!r}", session=session)
    if kit.offers("clear"):
        store.clear(session)
        for agent in written:
            found = store.call("read_for", session, agent)
            kit.same(found, [], f"agent {agent!r} of a session that was deleted", session=session)
