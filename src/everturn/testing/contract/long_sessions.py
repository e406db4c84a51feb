"""Clauses of long sessions: operations on 101, 1,001 and 10,001 messages. Many stores work in pages, and stop at one.

`long-history` and `large-turn` in edge.py store and read; these change. Most promises are those of short sessions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from everturn.testing.contract.edge import gives_up
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance, succeeded
from everturn.testing.races.sweep import LEAST_POINTS, Ended, Race, Sweep, modes, stop_at_every_call
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import CallerSteps, Do, Done, Step, Stop

registry = ClauseRegistry("edge", since=2)
PAGES = (101, 1_001, 10_001)  # one more than the usual pages
_BATCH = 50  # steps in one job


def sizes(kit: Kit) -> Iterator[int]:
    """Yield the lengths to try: the shortest always, longer ones where one call stores much and there is time."""
    unit, whole = kit.environment.opened.unit, kit.offers("whole_states")
    yield PAGES[0]
    if not (kit.quick and (unit != "turn" or whole)) and kit.time_left():
        yield PAGES[1]
    if not kit.quick and unit == "turn" and not whole and kit.time_left():
        yield PAGES[2]


def turns_of(kit: Kit, length: int) -> list[tuple[SentMessage, ...]]:
    """Make turns with so many messages in all. A checkpointer gets few large ones: each stores the whole state."""
    each = 50 if kit.offers("whole_states") else 7 if length <= PAGES[1] else 71
    turns: list[tuple[SentMessage, ...]] = []
    left = length
    while left > 0:
        turns.append(kit.turn(min(each, left)))
        left -= len(turns[-1])
    return turns


def stored(kit: Kit, store: Instance, turns: Sequence[tuple[SentMessage, ...]]) -> str | None:
    """Store the turns in a new session, unrecorded. Returns its name; None if the store refuses so many loudly.

    Raises Untested if that takes too long, and NotOffered if the shortest length is refused.
    """
    session, given_up = kit.session(), gives_up(kit)
    for start in range(0, len(turns), _BATCH):
        if time.monotonic() > given_up:
            raise Untested(f"only {start} of {len(turns)} turns could be stored in the time; give a larger --budget")
        steps = tuple(Step("append", session, (turn,)) for turn in turns[start : start + _BATCH])
        job = Do(store.slot, (CallerSteps(store.name, steps),))
        outcomes = kit.ask(store.worker, job, Done).outcomes[0]
        refused = next((number for number, outcome in enumerate(outcomes) if not outcome.ok), None)
        if refused is not None:
            taken, length = flat(turns[: start + refused]), len(flat(turns))
            story = f"a session of {length:,} messages was refused after {len(taken):,}, with {outcomes[refused].fault}"
            if not taken:
                succeeded(steps, outcomes)  # it refuses a first turn: no limit of a session
            later = [turn for turn, one in zip(turns[start + refused :], outcomes[refused:], strict=False) if one.ok]
            holds(kit, store, session, [taken, *later], story)
            if length <= PAGES[0]:
                raise NotOffered(story)
            kit.notes.append(story)
            return None
    return session


def holds(kit: Kit, store: Instance, session: str, turns: Sequence[Sequence[SentMessage]], story: str) -> None:
    """Raise Broken unless the session holds these turns."""
    read = store.take_unrecorded(Step("read", session))
    kit.check(read.ok, f"{story}: reading it raised {read.fault}", session=session)
    kit.same(read.value, turns, story, session=session)


def flat(turns: Sequence[Sequence[SentMessage]]) -> list[SentMessage]:
    return [sent for turn in turns for sent in turn]


@registry.clause(
    "long-clear",
    "Clearing a long session leaves it empty, past every page.",
    incident="A clear that deletes the first page of 100: an erasure request is answered, and the rest is still there.",
    needs=["clear"],
)
def long_clear(kit: Kit) -> None:
    store = kit.open()
    for length in sizes(kit):
        session = stored(kit, store, turns_of(kit, length))
        if session is None:
            break
        store.take_unrecorded(Step("clear", session))
        holds(kit, store, session, [], f"{length:,} messages were cleared")
        turn = kit.turn()
        store.append(session, turn)
        holds(kit, store, session, [turn], f"{length:,} messages were cleared, and one turn stored")


@registry.clause(
    "long-trim",
    "Trimming a long session keeps the latest messages, whatever the length and the limit.",
    incident="A trim that looks at one page: of 1,001 messages it keeps the latest of the first 1,000.",
    needs=["trim"],
)
def long_trim(kit: Kit) -> None:
    store = kit.open()
    for length in sizes(kit):
        turns = turns_of(kit, length)
        session = stored(kit, store, turns)
        if session is None:
            break
        for most in (length - len(turns[0]), 3 * len(turns[-1])):
            store.value(Step("trim", session, (most,)))
            found = store.take_unrecorded(Step("read", session))
            kit.check(found.ok, f"reading after a trim to {most:,} raised {found.fault}", session=session)
            kept = [seen.content for seen in found.value]
            wanted = [sent.content for sent in flat(turns)]
            fits = 0 < len(kept) <= most and kept == wanted[len(wanted) - len(kept) :]
            kit.check(
                fits, f"{length:,} messages trimmed to {most:,}: {len(kept):,} are left, {_ends(kept)}", session=session
            )


def _ends(contents: list[str]) -> str:
    return f"from {contents[0]!r} to {contents[-1]!r}" if contents else "none"


@registry.clause(
    "long-snapshot",
    "A snapshot of a long session brings back all of it, after more turns and after a clear.",
    incident="A snapshot that copies what one read returns: rolled back, the conversation ends at message 1,000.",
    needs=["save_snapshot", "rollback"],
)
def long_snapshot(kit: Kit) -> None:
    store = kit.open()
    for length in sizes(kit):
        turns = turns_of(kit, length)
        session = stored(kit, store, turns)
        if session is None:
            break
        snapshot = store.save_snapshot(session)
        store.append(session, kit.turn())
        store.rollback(session, snapshot)
        holds(kit, store, session, turns, f"{length:,} messages, rolled back after one more turn")
        if kit.offers("clear"):
            store.clear(session)
            store.rollback(session, snapshot)
            holds(kit, store, session, turns, f"{length:,} messages, cleared and rolled back")


@registry.clause(
    "long-replace",
    "Replacing the messages of a long session, or taking back its last one, does so past every page.",
    incident="set_messages that writes a batch of 25: of a restored backup the first 25 messages are there.",
    needs=["replace|pop"],
)
def long_replace(kit: Kit) -> None:
    store = kit.open()
    for length in sizes(kit):
        turns = turns_of(kit, length)
        session = stored(kit, store, turns)
        if session is None:
            break
        messages = flat(turns)
        if kit.offers("pop"):
            taken = store.call("pop", session)
            kit.check(
                taken is not None and taken.content == messages[-1].content,
                f"the last of {length:,} messages is {messages[-1].content!r}; {taken and taken.content!r} was taken",
                session=session,
            )
            holds(kit, store, session, [messages[:-1]], f"the last of {length:,} messages was taken back")
        if kit.offers("replace"):
            others = flat(turns_of(kit, length + 10))
            replaced = store.take_unrecorded(Step("replace", session, (tuple(others),)))
            if not replaced.ok:
                kit.notes.append(f"replacing by {len(others):,} messages was refused with {replaced.fault}")
                break
            holds(kit, store, session, [others], f"{length:,} messages were replaced by {length + 10:,}")
            store.take_unrecorded(Step("replace", session, (tuple(others[:5]),)))
            holds(kit, store, session, [others[:5]], f"{length + 10:,} messages were replaced by 5")


@registry.clause(
    "long-latest",
    "A read with a limit gives the latest messages of a long session, also more than a page of them.",
    incident="A limit applied to the first page: the prompt ends where the conversation was a week ago.",
    needs=["latest"],
)
def long_latest(kit: Kit) -> None:
    store = kit.open()
    for length in sizes(kit):
        turns = turns_of(kit, length)
        session = stored(kit, store, turns)
        if session is None:
            break
        messages = flat(turns)
        for most in (1, length // 2, length - 1, length + 1):
            found = store.call("latest", session, most)
            kit.same(found, [messages[-most:]], f"the latest {most:,} of {length:,} were asked for", session=session)


# --- in the middle ---------------------------------------------------------------------------------------------------

CHANGES = ("clear", "trim", "replace", "rollback")


def _fill(kit: Kit, store: Instance, session: str, *, snapshot: bool) -> object:
    """Store 101 messages in five turns, recorded. Returns a snapshot after the third, if it is needed."""
    handle = None
    for number in range(5):
        store.append(session, kit.turn(21 if number else 17))
        if number == 2 and snapshot:
            handle = store.save_snapshot(session)
    return handle


def _step(kit: Kit, operation: str, session: str, handle: object) -> Step:
    match operation:
        case "append":
            return Step("append", session, (kit.turn(21),))
        case "trim":
            return Step("trim", session, (42,))
        case "replace":
            return Step("replace", session, (kit.turn(101),))
        case "rollback":
            return Step("rollback", session, (handle,))
        case _:
            return Step(operation, session)


def _changes(kit: Kit) -> list[str]:
    offered = [one for one in CHANGES if kit.offers(one)]
    return [kit.dice.choice(offered)] if kit.quick and kit.only is None else offered


@registry.clause(
    "long-read",
    "A reader of a long session sees it before a change or after it, though it reads in pages.",
    incident="Pages by OFFSET: after a trim between two pages, 100 messages are missing in the middle.",
    needs=["appends", "lists", "processes|threads|tasks", "clear|trim|replace|rollback"],
    weight=2,
)
def long_read(kit: Kit) -> None:
    for mode in modes(kit)[: 1 if kit.quick else None]:
        sweep = Sweep(kit, mode)
        for change in _changes(kit):
            pairs = [("read", change), (change, "read")]
            for stopped, passing in [kit.dice.choice(pairs)] if kit.quick and kit.only is None else pairs:
                sweep.run(partial(_prepare, kit, stopped, passing), _read_afterwards)
        kit.notes.append(sweep.describe())
    kit.judge(least=10)


def _prepare(kit: Kit, stopped: str, passing: str, reader: Instance) -> Race:
    session = kit.session()
    handle = _fill(kit, reader, session, snapshot="rollback" in (stopped, passing))
    return Race(session, (_step(kit, stopped, session, handle),), (_step(kit, passing, session, handle),))


def _read_afterwards(reader: Instance, session: str, _: list[Ended]) -> None:
    reader.read(session)


@registry.clause(
    "killed-in-long-change",
    "A process killed while it clears, trims, replaces or rolls back a long session leaves it as before or as after.",
    incident="Deletes in batches of 25, each committed: after a crash a conversation begins with its 51st message.",
    needs=["lists", "processes", "clear|trim|replace|rollback"],
    weight=2,
)
def killed_in_long_change(kit: Kit) -> None:
    reader = kit.open("reader")
    points = 0
    for change in _changes(kit):

        def killed_at(n: int, session: str, change: str = change) -> bool:
            handle = _fill(kit, reader, session, snapshot=change == "rollback")
            store = kit.open("killed", watched=True)
            store.worker.send(store.job(_step(kit, change, session, handle), stop=Stop(n, "kill")))
            try:
                kit.report(store.worker, Done)
                died = False
            except WorkerDied:
                died = True
            reader.read(session)
            return died

        points += stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")
    kit.judge(least=LEAST_POINTS)
