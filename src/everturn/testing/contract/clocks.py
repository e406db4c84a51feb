"""Clauses of time: workers whose clocks differ, a clock that steps back, a day that ends between write and read.

workers/shifted_clock.py gives a worker its clock, and says what that cannot reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("concurrency", since=2)
DIFFERENCES = (0.04, 60.0)  # seconds: two machines kept by NTP, and one whose NTP is down
STEPS_BACK = (0.05, 3600.0)  # seconds: a correction, and a change of time zone by hand
DAY = 86_400.0
ENDS = {"day": DAY, "month": 32 * DAY, "year": 367 * DAY}


def stored(store: Instance, session: str, turn: Sequence[SentMessage]) -> Sequence[SentMessage]:
    store.append(session, turn)
    return turn


def _workers(kit: Kit, difference: float) -> list[Instance]:
    """Open the store in three processes: with the right clock, one that is ahead, and one that is behind."""
    stores = [kit.open(name) for name in ("right", "ahead", "behind")]
    for store, seconds in zip(stores, (0.0, difference, -difference), strict=True):
        store.set_clock(seconds)
    return stores


@registry.clause(
    "clocks-differ",
    "Turns of workers whose clocks differ come in the order in which they were stored, and all of them see all.",
    incident="Google ADK 2.13.0: order by timestamp. A pod whose clock is a minute behind answers before the question.",
    needs=["appends", "processes"],
    weight=2,
)
def clocks_differ(kit: Kit) -> None:
    for difference in DIFFERENCES:
        stores = _workers(kit, difference)
        session = kit.session()
        turns: list[Sequence[SentMessage]] = []
        for number in (1, 0, 2, 1, 0, 2):
            turns.append(stored(stores[number], session, kit.turn()))
            for store in stores:
                story = f"the clocks of three workers are {difference:g} s apart; {store.name} reads"
                kit.same(store.read(session), turns, story, session=session)
                if kit.offers("latest"):
                    last = turns[-1][-1:]
                    kit.same(store.call("latest", session, 1), [last], f"{story} the latest message", session=session)
        if kit.offers("pop"):
            # The last turn was stored by the worker that is behind: to a store that asks the clock, it is not the last.
            taken = stores[0].call("pop", session)
            wanted = turns[-1][-1].content
            story = f"the clocks of three workers are {difference:g} s apart; the last message is {wanted!r}"
            kit.check(
                taken is not None and taken.content == wanted,
                f"{story}, and {taken and taken.content!r} was taken back",
                session=session,
            )
        for store in stores:
            store.close()


@registry.clause(
    "clocks-differ-in-changes",
    "A clear, trim or rollback takes what was stored before it and nothing later, whatever the workers' clocks say.",
    incident="cleared_at = now(), and later rows are shown: a worker whose clock is behind writes turns nobody sees.",
    needs=["appends", "processes", "clear|trim|rollback"],
    weight=2,
)
def clocks_differ_in_changes(kit: Kit) -> None:
    for difference in DIFFERENCES:
        right, ahead, behind = _workers(kit, difference)
        for one, other in ((ahead, behind), (behind, ahead)):
            for session, expected, what in _changed(kit, one, other):
                later = stored(other, session, kit.turn())
                story = (
                    f"{what} by the worker that is {one.name} by {difference:g} s, then a turn by the one {other.name}"
                )
                for store in (right, other, one):
                    kit.same(store.read(session), [*expected, later], story, session=session)
        for store in (right, ahead, behind):
            store.close()


Changed = tuple[str, Sequence[Sequence[SentMessage]], str]


def _changed(kit: Kit, one: Instance, other: Instance) -> Iterator[Changed]:
    """Let `one` change sessions that both have stored turns in. Yields each, with the turns that are left."""
    if kit.offers("clear"):
        session = kit.session()
        stored(other, session, kit.turn())
        stored(one, session, kit.turn())
        one.clear(session)
        yield session, [], "cleared"
    if kit.offers("trim"):
        session, turns = kit.session(), kit.turns(3)
        for store, turn in zip((other, one, other), turns, strict=True):
            stored(store, session, turn)
        one.trim(session, len(turns[-1]))
        yield session, turns[-1:], "trimmed to one turn"
    if kit.offers("rollback"):
        session, turns = kit.session(), kit.turns(2)
        for store, turn in zip((other, one), turns, strict=True):
            stored(store, session, turn)
        snapshot = other.save_snapshot(session)
        for store in (one, other):
            stored(store, session, kit.turn())
        one.rollback(session, snapshot)
        yield session, turns, "rolled back to a snapshot of the other"


@registry.clause(
    "clock-steps-back",
    "A worker whose clock steps back goes on: its turns keep their order, and none is written over or hidden.",
    incident="An id from the time in milliseconds: NTP sets the clock back, and a turn gets the id of an earlier one.",
    needs=["appends"],
)
def clock_steps_back(kit: Kit) -> None:
    for step in STEPS_BACK:
        store, session = kit.open(), kit.session()
        turns: list[Sequence[SentMessage]] = []
        story = f"the clock was set back by {step:g} s between turns"
        for moment in (2 * step, step, 0.0):
            store.set_clock(moment)
            turns += [stored(store, session, kit.turn()) for _ in range(4)]
            kit.same(store.read(session), turns, story, session=session)
        kit.same(kit.open("later").read(session), turns, f"{story}; another worker reads", session=session)


@registry.clause(
    "day-ends",
    "What was stored yesterday is there today: no day, month or year that ends hides a turn or a snapshot.",
    incident="A file for each day: at midnight UTC, in the middle of the afternoon, every conversation begins anew.",
    needs=["appends"],
)
def day_ends(kit: Kit) -> None:
    store, session, turns = kit.open(), kit.session(), kit.turns(2 + len(ENDS))
    store.set_clock(0.0)
    stored(store, session, turns[0])
    snapshot = store.save_snapshot(session) if kit.offers("rollback") else None
    stored(store, session, turns[1])
    other = store
    for number, (name, later) in enumerate(ENDS.items(), 2):
        store.set_clock(later)
        kit.same(store.read(session), turns[:number], f"a {name} ended since the first turn", session=session)
        other = kit.open(f"opened a {name} later")
        other.set_clock(later)
        kit.same(other.read(session), turns[:number], f"the store was opened a {name} later", session=session)
        stored(other, session, turns[number])
        kit.same(store.read(session), turns[: number + 1], f"another stored a turn a {name} later", session=session)
    if kit.offers("rollback"):
        other.value(Step("rollback", session, (snapshot,)))
        kit.same(other.read(session), turns[:1], "it was rolled back to a snapshot of a year ago", session=session)
        last = stored(other, session, kit.turn())
        kit.same(store.read(session), [turns[0], last], "a year later, after a rollback", session=session)
