"""Clauses of snapshots, one caller at a time: save, rollback, undo, and wrong handles."""

from __future__ import annotations

from typing import Any

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential")
SNAPSHOTS = ("save_snapshot", "rollback")


def kept(kit: Kit) -> tuple[Instance, str, list[tuple[SentMessage, ...]], Any]:
    """Make a session with two turns, a snapshot, and one more turn. Returns instance, session, turns and snapshot."""
    store, session, turns = kit.borrow(), kit.session(), kit.turns(2)
    for turn in turns:
        store.append(session, turn)
    snapshot = store.save_snapshot(session)
    store.append(session, kit.turn())
    return store, session, turns, snapshot


@registry.clause(
    "rollback",
    "Rolling back to a snapshot brings back what the session held when it was taken.",
    incident="adk-python#4839: a rewind that leaves the state of the turns it took back.",
    needs=SNAPSHOTS,
)
def rollback(kit: Kit) -> None:
    store, session, turns, snapshot = kept(kit)
    store.rollback(session, snapshot)
    kit.same(store.read(session), turns, "it was rolled back to two turns", session=session)


@registry.clause(
    "rollback-twice",
    "A snapshot can be rolled back to again: a rollback removes no snapshot.",
    incident="A rollback that rebuilds the table wipes the snapshots with it: the second rollback finds nothing.",
    needs=SNAPSHOTS,
)
def rollback_twice(kit: Kit) -> None:
    store, session, turns, snapshot = kept(kit)
    for _ in range(3):
        store.rollback(session, snapshot)
        kit.same(store.read(session), turns, "it was rolled back to two turns", session=session)
        store.append(session, kit.turn())


@registry.clause(
    "roll-forward",
    "After rolling back, a later snapshot can still be rolled to.",
    incident="A rollback deletes all that is later, snapshots too: a wrong click cannot be taken back.",
    needs=SNAPSHOTS,
)
def roll_forward(kit: Kit) -> None:
    store, session, turns, early = kept(kit)
    last = kit.turn()
    store.rollback(session, early)
    store.append(session, last)
    late = store.save_snapshot(session)
    store.rollback(session, early)
    kit.same(store.read(session), turns, "it was rolled back to the earlier snapshot", session=session)
    store.rollback(session, late)
    kit.same(store.read(session), [*turns, last], "it was rolled forward to the later snapshot", session=session)


@registry.clause(
    "rollback-then-append",
    "Turns stored after a rollback follow what it brought back, and what was rolled back stays away.",
    incident="Numbers given out before the rollback are given out again, and the new turn is written over.",
    needs=SNAPSHOTS,
)
def rollback_then_append(kit: Kit) -> None:
    store, session, turns, snapshot = kept(kit)
    store.rollback(session, snapshot)
    later = kit.turns(3)
    for turn in later:
        store.append(session, turn)
    kit.same(store.read(session), [*turns, *later], "three turns were stored after a rollback", session=session)


@registry.clause(
    "snapshot-of-nothing",
    "A snapshot of an empty session is refused, or brings back an empty session.",
    incident="A snapshot taken at the start of a conversation rolls back to the end of the one before.",
    needs=SNAPSHOTS,
)
def snapshot_of_nothing(kit: Kit) -> None:
    store, session, turn = kit.borrow(), kit.session(), kit.turn()
    taken = store.take(Step("save_snapshot", session))
    store.append(session, turn)
    if taken.ok:
        store.rollback(session, taken.value)
        kit.same(store.read(session), [], "it was rolled back to nothing", session=session)
    else:
        kit.same(store.read(session), [turn], "a snapshot of nothing was refused", session=session)
        store.rollback(session, store.save_snapshot(session))
        kit.same(store.read(session), [turn], "it was rolled back to one turn", session=session)


@registry.clause(
    "snapshots-are-many",
    "Each snapshot brings back its own state, in any order.",
    incident="One slot for the latest snapshot: all handles lead to the same state.",
    needs=SNAPSHOTS,
)
def snapshots_are_many(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(5)
    taken = []
    for turn in turns:
        store.append(session, turn)
        taken.append(store.save_snapshot(session))
    order = list(range(5))
    kit.dice.shuffle(order)
    for number in order:
        store.rollback(session, taken[number])
        kit.same(store.read(session), turns[: number + 1], f"it was rolled back to {number + 1} turns", session=session)


@registry.clause(
    "snapshots-are-listed",
    "Every snapshot is listed until it is deleted, whatever was rolled back, cleared or stored since.",
    incident="A rollback rebuilds the table and wipes `snapshots`; a test that looks at the messages only is green.",
    needs=[*SNAPSHOTS, "list_snapshots"],
)
def snapshots_are_listed(kit: Kit) -> None:
    store, session, _, early = kept(kit)
    late = store.save_snapshot(session)
    store.rollback(session, early)
    store.append(session, kit.turn())
    listed = store.call("list_snapshots", session)
    for snapshot in (early, late):
        kit.check(snapshot in listed, f"snapshot {snapshot!r} is not among {listed!r}", session=session)


@registry.clause(
    "clear-keeps-snapshots",
    "A snapshot brings back what was cleared or trimmed since.",
    incident="A clear that removes rows which a snapshot still points to: rolling back gives an empty conversation.",
    needs=[*SNAPSHOTS, "clear"],
)
def clear_keeps_snapshots(kit: Kit) -> None:
    store, session, turns, snapshot = kept(kit)
    if kit.offers("trim"):
        store.trim(session, len(turns[0]))
        store.rollback(session, snapshot)
        kit.same(store.read(session), turns, "it was trimmed, then rolled back", session=session)
    store.clear(session)
    store.rollback(session, snapshot)
    kit.same(store.read(session), turns, "it was cleared, then rolled back", session=session)


# --- wrong handles ---------------------------------------------------------------------------------------------------


@registry.clause(
    "unknown-snapshot",
    "Rolling back to a snapshot that never was is an error, and changes nothing.",
    incident="A typo in a snapshot's id: the rollback deletes everything after nothing, and calls it done.",
    needs=SNAPSHOTS,
)
def unknown_snapshot(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(2)
    for turn in turns:
        store.append(session, turn)
    snapshot = store.save_snapshot(session)
    for wrong in _never_were(snapshot):
        kit.refused(store, Step("rollback", session, (wrong,)), "there is no such snapshot")
        kit.same(store.read(session), turns, "a rollback was refused", session=session)
    store.append(session, kit.turn())
    store.rollback(session, snapshot)
    kit.same(store.read(session), turns, "it was rolled back to the right snapshot", session=session)


def _never_were(snapshot: Any) -> list[Any]:
    """Make handles of the same type that name no snapshot."""
    if isinstance(snapshot, int):
        return [snapshot + 1000, 0, -1]
    return [f"{snapshot}x", "no-such-snapshot", ""]


@registry.clause(
    "deleted-snapshot",
    "Rolling back to a snapshot that was deleted is an error, and changes nothing.",
    incident="A handle whose id was given out again leads to somebody else's state.",
    needs=[*SNAPSHOTS, "delete_snapshot"],
)
def deleted_snapshot(kit: Kit) -> None:
    store, session, _, snapshot = kept(kit)
    other = store.save_snapshot(session)
    now = store.read(session)
    store.call("delete_snapshot", session, snapshot)
    kit.refused(store, Step("rollback", session, (snapshot,)), "the snapshot was deleted")
    kit.check(store.read(session) == now, "a refused rollback changed the session", session=session)
    store.append(session, kit.turn())
    store.rollback(session, other)
    kit.check(store.read(session) == now, "deleting one snapshot took another along", session=session)


@registry.clause(
    "snapshot-of-another-session",
    "Rolling back to another session's snapshot is an error, and changes neither session.",
    incident="A snapshot looked up by id alone: one customer's conversation is rolled back to another's.",
    needs=SNAPSHOTS,
)
def snapshot_of_another_session(kit: Kit) -> None:
    store, session, turns, own = kept(kit)
    now = store.read(session)
    other, theirs = kit.session(), kit.turns(2)
    store.append(other, theirs[0])
    snapshot = store.save_snapshot(other)
    store.append(other, theirs[1])
    kit.refused(store, Step("rollback", session, (snapshot,)), "it is another session's snapshot")
    kit.check(store.read(session) == now, "a refused rollback changed the session", session=session)
    kit.same(store.read(other), theirs, "its snapshot was used on another session", session=other)
    store.rollback(session, own)
    kit.same(store.read(session), turns, "it was rolled back to its own snapshot", session=session)


# --- more than messages, and undo ------------------------------------------------------------------------------------


@registry.clause(
    "rollback-takes-everything",
    "Messages, tool calls and summaries return to the snapshot together.",
    incident="The messages are rolled back, the summary of them is not: the agent recalls what was never said.",
    needs=[*SNAPSHOTS, "tool_calls|summaries"],
)
def rollback_takes_everything(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(2)
    store.append(session, turns[0])
    kinds = [(add, read) for add, read in PARTS if kit.offers(read)]
    for add, _ in kinds:
        store.call(add, session, "before")
    snapshot = store.save_snapshot(session)
    store.append(session, turns[1])
    for add, _ in kinds:
        store.call(add, session, "after")
    store.rollback(session, snapshot)
    kit.same(store.read(session), turns[:1], "it was rolled back to one turn", session=session)
    for _, read in kinds:
        found = store.call(read, session)
        kit.check(found == ["before"], f"after the rollback, {read} are {found!r} and not ['before']", session=session)


PARTS = (("add_tool_call", "tool_calls"), ("add_summary", "summaries"))


@registry.clause(
    "undo",
    "Undo takes back the latest rollback, clear or trim.",
    incident="The wrong session was cleared, in production, by hand.",
    needs=["undo", "clear"],
)
def undo(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(3)
    for turn in turns:
        store.append(session, turn)
    steps = [Step("clear", session)]
    if kit.offers("trim"):
        steps.append(Step("trim", session, (len(turns[0]),)))
    if kit.offers("save_snapshot"):
        snapshot = store.save_snapshot(session)
        store.append(session, turns.append(kit.turn()) or turns[-1])  # type: ignore[func-returns-value]
        steps.append(Step("rollback", session, (snapshot,)))
    for step in steps:
        store.value(step)
        store.call("undo", session)
        kit.same(store.read(session), turns, f"{step.op} was undone", session=session)


@registry.clause(
    "undo-of-nothing",
    "Where there is nothing to undo, undo is an error, and changes nothing.",
    incident="An undo key that is pressed too often takes back turns that nobody wanted back.",
    needs=["undo"],
)
def undo_of_nothing(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(2)
    for turn in turns:
        store.append(session, turn)
    kit.refused(store, Step("undo", session), "there is nothing to undo")
    kit.same(store.read(session), turns, "an undo was refused", session=session)
    if kit.offers("clear"):
        store.clear(session)
        store.call("undo", session)
        kit.same(store.read(session), turns, "a clear was taken back", session=session)
