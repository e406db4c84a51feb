"""Clauses of contents that are equal, or sorted by nothing: what is the same in two places is stored twice, and removed
once. What was removed leaves nothing behind for the next.
"""

from __future__ import annotations

from everturn.testing.contract.removal import trimmed
from everturn.testing.contract.sequential import TOOL_CALL
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential", since=2)
REMOVALS = ("clear", "trim", "replace", "pop", "delete_message")
LARGE = 10_000  # times a few words: 110,000 characters
Turn = tuple[SentMessage, ...]


def saying(kit: Kit, *contents: str) -> list[Turn]:
    """Make turns that say these contents, one after the other, with as many messages as one call takes."""
    size = {"turn": 3, "pair": 2, "message": 1}[kit.environment.opened.unit]
    messages = [SentMessage(("user", "assistant")[place % 2], content) for place, content in enumerate(contents)]
    return [tuple(messages[place : place + size]) for place in range(0, len(messages) - size + 1, size)]


def store_all(store: Instance, session: str, turns: list[Turn]) -> bool:
    """Store turns without recording them: their words are not theirs alone. Returns whether all were accepted."""
    stored = [store.take_unrecorded(Step("append", session, (turn,))) for turn in turns]
    return all(outcome.ok for outcome in stored)


def removal(name: str, turns: list[Turn]) -> tuple[object, ...]:
    """Name the arguments of an operation that removes something, for a session of these turns."""
    return {"trim": (len(turns[0]),), "replace": (turns[0],), "delete_message": (0,)}.get(name, ())


@registry.clause(
    "order-of-words",
    "Messages keep their order whatever their words and roles: within a turn, and from turn to turn.",
    incident="ZADD with one score for a turn: Redis sorts its messages by their bytes, and the answer stands first.",
)
def order_of_words(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    words = [
        f"{first} {number}" for number, first in enumerate(("z", "m", "a", "Z", "é", "0", "y", "~", " ", "l", "A", "b"))
    ]
    turns = saying(kit, *words)
    store_all(store, session, turns)
    kit.same(store.take_unrecorded(Step("read", session)).value, turns, "words that are in no order", session=session)


@registry.clause(
    "equal-sessions",
    "Two sessions that hold the same words are two: what is removed from one stays in the other.",
    incident="Messages stored once under a hash of their words: one user's deletion empties everybody's 'hello'.",
    needs=["clear|trim|replace|pop"],
)
def equal_sessions(kit: Kit) -> None:
    store = kit.borrow()
    short = saying(kit, *(f"the same {number}" for number in range(6)))
    # Large contents are kept elsewhere by some stores, under a hash of them.
    long = saying(kit, *(f"the same {number} " * LARGE for number in range(6)))
    for name, turns in [(name, turns) for turns in (short, long) for name in REMOVALS]:
        if not kit.offers(name):
            continue
        session, twin = kit.session(), kit.session()
        if not all(store_all(store, one, turns) for one in (session, twin)) and turns is long:
            continue
        store.take_unrecorded(Step(name, session, removal(name, turns)))
        story = f"another session with the same {'long ' if turns is long else ''}words was changed by {name}"
        found = store.take_unrecorded(Step("read", twin))
        kit.check(found.ok, f"{story}: reading raised {found.fault}", session=twin)
        kit.same(found.value, turns, story, session=twin)


@registry.clause(
    "equal-messages-removed",
    "Of equal messages the one that is to go is removed: by its place, and not by its words.",
    incident="pop deletes WHERE content = ?: the user takes back the last yes, and every yes before it is gone.",
    needs=["trim|pop|delete_message"],
)
def equal_messages_removed(kit: Kit) -> None:
    store = kit.borrow()
    turns = saying(kit, *["yes", "ok", "no"] * 3, *["yes", "ok", "yes"])
    messages = [sent for turn in turns for sent in turn]
    if kit.offers("trim"):
        session = kit.session()
        store_all(store, session, turns)
        trimmed(kit, store, session, messages, 4)
    for name, left in (("pop", messages[:-1]), ("delete_message", messages[1:])):
        if kit.offers(name):
            session = kit.session()
            store_all(store, session, turns)
            store.take_unrecorded(Step(name, session, removal(name, turns)))
            found = store.take_unrecorded(Step("read", session)).value
            kit.same(found, [left], f"{name} took one of several equal messages", session=session)


@registry.clause(
    "fields-of-the-removed",
    "A message has no fields of another one that was removed before.",
    incident="Row ids are given out again: a new message has the tool calls of one that another user had deleted.",
    needs=["fields", "clear|pop|trim"],
)
def fields_of_the_removed(kit: Kit) -> None:
    store = kit.borrow()
    marks = 0
    for name in ("clear", "trim", "pop"):
        if not kit.offers(name):
            continue
        session, other = kit.session(), kit.session()
        mark = f"mark-{session}"
        fields = {"id": mark, "name": mark, "metadata": {"of": mark}, "tool_calls": [{**TOOL_CALL, "id": mark}]}
        stored = store.take_unrecorded(Step("append", session, ((SentMessage("assistant", "removed", fields),),)))
        if not stored.ok:
            continue
        store.take_unrecorded(Step(name, session, (0,) if name == "trim" else ()))
        left = store.take_unrecorded(Step("read", session))
        if left.value:  # a trim may keep the last turn
            continue
        marks += 1
        for one in (other, session):
            store.take_unrecorded(Step("append", one, ((SentMessage("user", "plain"),),)))
            found = store.take_unrecorded(Step("read", one))
            kit.same(found.value or [], [(SentMessage("user", "plain"),)], f"a message after {name}", session=one)
            kit.check(
                mark not in repr(found.value[0].fields),
                f"a message without fields has those of one that was removed by {name}: {found.value[0].fields!r:.200}",
                session=one,
            )
    if not marks:
        raise NotOffered("no message with fields could be stored and removed")
