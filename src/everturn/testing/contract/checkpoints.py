"""Clauses of checkpointers (LangGraph, Agent Framework), which store whole states: what they keep; lost updates."""

from __future__ import annotations

from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Done, Step

registry = ClauseRegistry("sequential")


@registry.clause(
    "checkpoint-by-id",
    "Every acknowledged checkpoint can be had by its id, with what was put and with the right parent.",
    incident="langgraph#7843: what cannot be had by its id cannot be resumed, replayed or forked from.",
    needs=["checkpoints"],
)
def checkpoint_by_id(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(6)
    ids = [store.append(session, turn) for turn in turns]
    for number, checkpoint_id in enumerate(ids):
        found = store.call("checkpoint", session, checkpoint_id)
        kit.check(found is not None, f"checkpoint {checkpoint_id} cannot be retrieved", session=session)
        messages, parent = found
        kit.same(messages, turns[: number + 1], f"checkpoint {number + 1} of 6", session=session)
        wanted = ids[number - 1] if number else None
        kit.check(parent == wanted, f"the parent of checkpoint {number + 1} is {parent}, not {wanted}", session=session)


@registry.clause(
    "checkpoint-lost-update",
    "Of two callers that read the same state, the second to put is told that there is a newer one.",
    incident="langgraph#8796, #8115: 6 processes, 240 turns, all acknowledged; 25 (SQLite) and 186 (PostgreSQL) lost.",
    needs=["hold"],
)
def checkpoint_lost_update(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    store.append(session, kit.turn())
    first, second = kit.turn(), kit.turn()
    store.call("hold", session, "A")
    store.call("hold", session, "B")
    store.call("put_held", session, "A", first)
    outcome = store.take(Step("put_held", session, ("B", second)))
    found = {seen.content for seen in store.read(session)}
    kit.check(
        not outcome.ok or found.issuperset(sent.content for sent in (*first, *second)),
        "A reads, B reads, A puts, B puts: B was told nothing, and A's turn is gone",
        session=session,
    )


@registry.clause(
    "checkpoints-are-all-kept",
    "Checkpoints that several processes put into one thread at once can all be had by their ids, with their parents.",
    incident="A row for each step of a thread: of two checkpoints of one step, the later takes the place of the other.",
    needs=["checkpoints", "processes"],
    weight=2,
)
def checkpoints_are_all_kept(kit: Kit) -> None:
    stores = [kit.borrow(f"writer {number}") for number in range(1, 5)]
    reader = kit.borrow("reader")
    for _ in range(3 if kit.quick else 10):
        session = kit.session()
        for store in stores:
            steps = (Step("append_with_parent", session, (kit.turn(),)) for _ in range(4))
            store.worker.send(store.job(*steps))
        made = [one.value for store in stores for one in kit.report(store.worker, Done).outcomes[0] if one.ok]
        if len(made) < 4:
            raise Untested(f"only {len(made)} of 16 puts were acknowledged")
        for checkpoint_id, parent in made:
            found = reader.call("checkpoint", session, checkpoint_id)
            kit.check(
                found is not None, f"checkpoint {checkpoint_id} was acknowledged and is not there", session=session
            )
            kit.check(found[1] == parent, f"the parent of {checkpoint_id} is {found[1]}, not {parent}", session=session)


@registry.clause(
    "checkpoint-list",
    "Listing a thread gives each of its checkpoints once, newest first, as many and as old as were asked for.",
    incident="list() sorts the oldest first and ignores `before`: 'go back one step' replays the whole conversation.",
    needs=["listing"],
    since=2,
)
def checkpoint_list(kit: Kit) -> None:
    store, session, other = kit.borrow(), kit.session(), kit.session()
    ids: list[str] = []
    for _ in range(6):
        ids.append(store.append(session, kit.turn()))
        store.append(other, kit.turn())
        if kit.offers("subgraphs"):
            store.call("append_in", session, "subgraph", kit.turn())
    newest = ids[::-1]
    for story, wanted, options in (
        ("all", newest, {}),
        ("the latest two", newest[:2], {"limit": 2}),
        ("those before the third", newest[4:], {"before": ids[2]}),
        ("the latest before the fifth", newest[2:3], {"before": ids[4], "limit": 1}),
    ):
        found = store.call("listed", session, **options)
        places = [ids.index(one) + 1 if one in ids else one for one in found]
        kit.check(
            found == wanted,
            f"of 6 checkpoints, {story} are listed as {places}, not {[ids.index(one) + 1 for one in wanted]}",
            session=session,
        )


@registry.clause(
    "checkpoint-of-another-thread",
    "A checkpoint can be had in its own thread and namespace alone, and not by its id in another.",
    incident="WHERE checkpoint_id = ?: a link with another customer's id opens that customer's conversation.",
    needs=["subgraphs"],
    since=2,
)
def checkpoint_of_another_thread(kit: Kit) -> None:
    store, session, other = kit.borrow(), kit.session(), kit.session()
    turns = kit.turns(2)
    theirs = [store.append(session, turn) for turn in turns][-1]
    inner = store.call("append_in", session, "subgraph", kit.turn())
    store.append(other, kit.turn())
    for thread, checkpoint_id, what in (
        (other, theirs, "a checkpoint of another thread"),
        (session, inner, "a checkpoint of a subgraph"),
    ):
        outcome = store.take(Step("checkpoint", thread, (checkpoint_id,)))  # an error says that it is not there, too
        kit.check(not outcome.ok or outcome.value is None, f"{what} was returned by its id", session=thread)
    found = store.call("checkpoint", session, theirs)
    kit.check(found is not None, f"checkpoint {theirs} cannot be retrieved in its own thread", session=session)
    kit.same(found[0], turns, "a checkpoint was looked for by its id", session=session)


@registry.clause(
    "checkpoint-forks",
    "Checkpoints that were made from one and the same have each their own messages, also after later ones.",
    incident="Channels kept by (thread, channel, version): a fork has the version of its twin, and shows its answers.",
    needs=["subgraphs"],
    since=2,
)
def checkpoint_forks(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    first, second = kit.turns(2)
    begun = store.append(session, first)
    made = {store.append(session, second): [first, second]}
    refused = 0
    for parent, before in ((begun, [first]), (begun, [first]), (next(iter(made)), [first, second])):
        turn = kit.turn()
        outcome = store.take_unrecorded(Step("append_to", session, (parent, turn)))
        refused += not outcome.ok  # a saver may take no other checkpoint than one made from the latest
        if outcome.ok:
            made[outcome.value] = [*before, turn]
    if refused == 3:
        raise NotOffered("checkpoints that are not made from the latest one are refused")
    for checkpoint_id, turns in made.items():
        found = store.call("checkpoint", session, checkpoint_id)
        kit.check(found is not None, f"checkpoint {checkpoint_id} cannot be retrieved", session=session)
        story = f"{len(made)} checkpoints were made from two, and one of them was looked for by its id"
        kit.same(found[0], turns, story, session=session)
