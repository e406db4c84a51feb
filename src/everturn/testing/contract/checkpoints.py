"""Stores of whole states (LangGraph's checkpointers): what they keep, and whether a lost update is noticed."""

from __future__ import annotations

from everturn.testing.clauses import Book
from everturn.testing.kit import Kit
from everturn.testing.orders import Step

book = Book("sequential")


@book.clause(
    "checkpoint-by-id",
    "Every acknowledged checkpoint can be had by its id, with what was put and with the right parent.",
    incident="langgraph#7843: what cannot be had by its id cannot be resumed, replayed or forked from.",
    needs=["checkpoints"],
)
def checkpoint_by_id(kit: Kit) -> None:
    store, session, turns = kit.open(), kit.session(), kit.turns(6)
    ids = [store.append(session, turn) for turn in turns]
    for number, checkpoint_id in enumerate(ids):
        found = store.call("checkpoint", session, checkpoint_id)
        kit.check(found is not None, f"checkpoint {checkpoint_id} cannot be retrieved", session=session)
        messages, parent = found
        kit.same(messages, turns[: number + 1], f"checkpoint {number + 1} of 6", session=session)
        wanted = ids[number - 1] if number else None
        kit.check(parent == wanted, f"the parent of checkpoint {number + 1} is {parent}, not {wanted}", session=session)


@book.clause(
    "checkpoint-lost-update",
    "Of two callers that read the same state, the second to put is told that there is a newer one.",
    incident="langgraph#8796, #8115: 6 processes, 240 turns, all acknowledged; 25 (SQLite) and 186 (PostgreSQL) lost.",
    needs=["checkpoints"],
)
def checkpoint_lost_update(kit: Kit) -> None:
    store, session = kit.open(), kit.session()
    store.append(session, kit.turn())
    first, second = kit.turn(), kit.turn()
    store.call("hold", session, "A")
    store.call("hold", session, "B")
    store.call("put_held", session, "A", first)
    told = store.take(Step("put_held", session, ("B", second)))
    found = {seen.content for seen in store.read(session)}
    kit.check(
        not told.ok or found.issuperset(said.content for said in (*first, *second)),
        "A reads, B reads, A puts, B puts: B was told nothing, and A's turn is gone",
        session=session,
    )
