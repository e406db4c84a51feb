"""Clauses of large changes in the middle: a turn of many messages, and changes of a long session, beside other calls.

Many stores take another way above some number of messages: pages, batches, several transactions. Points to stop at are
spread over the whole call. long_sessions.py has what comes out when nothing disturbs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from everturn.testing.contract.pauses import PATIENCE, spread
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Done, Paused, Step, Stop

registry = ClauseRegistry("edge", since=2)
LARGE, QUICK_LARGE = 1_001, 101  # messages in a turn
LONG = (300_000, 30_000, 3_000)  # characters of a message: the first of these that the store takes
CHANGES = ("trim", "replace", "rollback", "clear", "save_snapshot")


def _points(kit: Kit, last: int) -> Iterator[int]:
    """Yield points of a call, spread over all of it: some in a quick run, more if there is time."""
    if kit.only is not None:
        yield kit.only
        return
    few = spread(last, 6)
    yield from few
    for n in () if kit.quick else spread(last, 30):
        if n not in few and kit.time_left():
            yield n


def _counted(kit: Kit, store: Instance, step: Step) -> int:
    """Take a step and count its driver calls."""
    return kit.ask(store.worker, store.job(step, stop=Stop(0)), Done).stops


def _stopped(kit: Kit, store: Instance, step: Step, n: int) -> bool:
    """Stop a worker at its n-th driver call of a step. Returns False if the step ended before."""
    store.worker.send(store.job(step, stop=Stop(n)))
    return isinstance(kit.any_report(store.worker), Paused)


@registry.clause(
    "large-turn-at-once",
    "A turn of many messages is whole or absent: for a reader beside it, and if its process is killed in the middle.",
    incident="DynamoDB writes 25 items at a time: a worker dies in a turn of 40, and the model sees half of it.",
    needs=["appends", "lists", "processes"],
    weight=2,
)
def large_turn_at_once(kit: Kit) -> None:
    _killed_beside_a_reader(kit, lambda session: _turn(kit, session))


@registry.clause(
    "large-message-at-once",
    "A turn with a message of 300,000 characters is whole or absent: for a reader, and if its process is killed.",
    incident="Texts over 8 KiB go to a bucket after the row is stored: a worker dies, and the row leads nowhere.",
    needs=["appends", "processes"],
    weight=2,
)
def large_message_at_once(kit: Kit) -> None:
    store = kit.borrow("taker")
    for size in LONG:
        if store.take(_long_turn(kit, kit.session(), size)).ok:
            break
    else:
        raise NotOffered(f"messages of {LONG[-1]} characters are refused")
    kit.notes.append(f"messages of {size} characters")
    _killed_beside_a_reader(kit, lambda session: _long_turn(kit, session, size))


def _long_turn(kit: Kit, session: str, size: int) -> Step:
    *others, last = kit.turn()
    long = f"{last.content} {secrets.token_hex(size // 2)}"  # neither equal to another, nor compressed to nothing
    return Step("append", session, ((*others, SentMessage(last.role, long)),))


def _killed_beside_a_reader(kit: Kit, turn: Callable[[str], Step]) -> None:
    """Stop an append at points spread over it, read meanwhile, kill its process, and read and store again."""
    reader = kit.open("reader")
    counted, session = kit.open("counted", watched=True), kit.session()
    last = _counted(kit, counted, turn(session))
    points = 0
    for n in _points(kit, last):
        session = kit.session()
        kit.replays[session] = f"{kit.clause.id}@{n}"
        reader.append(session, kit.turn())
        store = kit.open("killed", watched=True)
        if not _stopped(kit, store, turn(session), n):
            store.close()
            continue
        points += 1
        reader.worker.send(reader.job(Step("read", session)))
        reader.worker.poll(PATIENCE)  # it may have to wait for what the stopped one holds
        store.kill()
        kit.report(reader.worker, Done)
        reader.read(session)
        reader.append(session, kit.turn())
        reader.read(session)
    kit.notes.append(f"killed at {points} of {last} driver calls" if points else "no driver call is visible")
    kit.judge(least=3)


def _turn(kit: Kit, session: str) -> Step:
    return Step("append", session, (kit.turn(QUICK_LARGE if kit.quick else LARGE),))


@registry.clause(
    "append-in-long-change",
    "A turn stored while a long session is trimmed, replaced, rolled back, cleared or copied is kept, or goes with it.",
    incident="A trim of over 100 messages reads and writes back, a shorter one does not: what came in between is gone.",
    needs=["appends", "lists", "processes", "clear|trim|replace|rollback"],
    weight=2,
)
def append_in_long_change(kit: Kit) -> None:
    other, stops = kit.open("other"), 0
    for change in [one for one in CHANGES if kit.offers(one)]:
        store = kit.open(f"stopped in {change}", watched=True)
        last = _counted(kit, store, _change(kit, store, change))
        for n in _points(kit, last):
            step = _change(kit, store, change)
            session = str(step.session)
            kit.replays[session] = f"{kit.clause.id}@{n}"
            stopped = _stopped(kit, store, step, n)
            other.worker.send(other.job(Step("append", session, (kit.turn(),))))
            if stopped:
                stops += 1
                other.worker.poll(PATIENCE)
                store.worker.resume()
                outcome = kit.report(store.worker, Done).outcomes[0][0]
                if change == "save_snapshot" and outcome.ok:
                    kit.report(other.worker, Done)
                    other.read(session)
                    other.rollback(session, outcome.value)
                    other.read(session)
                    continue
            kit.report(other.worker, Done)
            other.read(session)
        store.close()
    kit.notes.append(f"stopped {stops} times")
    kit.judge(least=3)


def _change(kit: Kit, store: Instance, change: str) -> Step:
    """Store 101 messages in five turns, and prepare a change of them."""
    session = kit.session()
    turns = [kit.turn(17 if number == 0 else 21) for number in range(5)]
    store.values(*(Step("append", session, (turn,)) for turn in turns[:3]))
    handle = store.save_snapshot(session) if change == "rollback" else None
    store.values(*(Step("append", session, (turn,)) for turn in turns[3:]))
    arguments = {"trim": (42,), "replace": (kit.turn(101),), "rollback": (handle,)}
    return Step(change, session, arguments.get(change, ()))
