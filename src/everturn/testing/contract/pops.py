"""Clauses of races of what some shapes have beside appending: pop, replace, and deleting one message.

races.py has the pairs that all histories know. A pop is in no history: what is left is compared with every order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import permutations

from everturn.testing.contract.sequential import session_with_turns
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import Ended, Race, Sweep, modes, stop_at_every_call
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Outcome, Step, Stop

registry = ClauseRegistry("concurrency", since=2)


def _race(kit: Kit, one: str, other: str) -> None:
    """Race two operations at every point, and compare what is left with every order in which they can have come."""
    both = list(dict.fromkeys([(one, other), (other, one)]))
    for mode in modes(kit):
        sweep = Sweep(kit, mode)
        for stopped, passing in [kit.dice.choice(both)] if kit.quick and kit.only is None else both:
            before: dict[str, list[str]] = {}
            sweep.run(partial(_prepare, kit, stopped, passing, before), partial(_judge, kit, before))
        kit.notes.append(sweep.describe())


def _prepare(kit: Kit, stopped: str, passing: str, before: dict[str, list[str]], reader: Instance) -> Race:
    session, turns = kit.session(), kit.turns(3)
    reader.values(*(Step("append", session, (turn,)) for turn in turns))
    before[session] = [sent.content for turn in turns for sent in turn]
    return Race(session, (_step(kit, stopped, session),), (_step(kit, passing, session),))


def _step(kit: Kit, operation: str, session: str) -> Step:
    arguments = {"append": (kit.turn(),), "replace": (kit.turn(),), "delete_message": (0,)}
    return Step(operation, session, arguments.get(operation, ()))


def _judge(kit: Kit, before: dict[str, list[str]], reader: Instance, session: str, ended: list[Ended]) -> None:
    found = [seen.content for seen in reader.read(session)]
    allowed = [_after(before[session], order) for order in _orders(ended)]
    calls = "; ".join(f"{step.op} {'ok' if outcome.ok else outcome.fault}" for step, outcome in ended)
    kit.check(
        found in allowed,
        f"it held {before[session]}; at once: {calls}. It holds {found}, and no order of the two leads to that: "
        f"{' or '.join(map(str, allowed[:4]))}",
        session=session,
    )
    taken = [outcome.value.content for step, outcome in ended if step.op == "pop" and outcome.ok and outcome.value]
    kit.check(len(taken) == len(set(taken)), f"two pops at once both took {taken}", session=session)
    kit.check(not set(taken) & set(found), f"{taken} were taken back, and are still among {found}", session=session)


def _orders(ended: list[Ended]) -> Iterable[Sequence[Step]]:
    """Yield the calls in every order; one that raised may have taken effect or not."""
    steps = [(step, outcome) for step, outcome in ended if step.op != "read"]
    for order in permutations(steps):
        yield [step for step, _ in order]
        for left_out in (one for one in order if not one[1].ok):
            yield [step for step, outcome in order if (step, outcome) != left_out]
        yield [step for step, outcome in order if outcome.ok]


def _after(messages: list[str], steps: Sequence[Step]) -> list[str]:
    held = list(messages)
    for step in steps:
        match step.op:
            case "append":
                held += [sent.content for sent in step.args[0]]
            case "replace":
                held = [sent.content for sent in step.args[0]]
            case "pop":
                held = held[:-1]
            case "delete_message":
                del held[step.args[0]]
    return held


SIDE_BY_SIDE = ["appends", "processes|threads|tasks"]


@registry.clause(
    "pop-pop",
    "Two callers that take back the last message at once take two messages, and each gets its own.",
    incident="SELECT the last, DELETE it: two runners that rewind at once get the same item, and one is left too many.",
    needs=[*SIDE_BY_SIDE, "pop"],
    weight=2,
)
def pop_pop(kit: Kit) -> None:
    _race(kit, "pop", "pop")


@registry.clause(
    "append-pop",
    "A message that is taken back while a turn is stored is the last one before it or after it, and the turn is kept.",
    incident="A pop that writes back the list without its last item: the turn that came in between is gone.",
    needs=[*SIDE_BY_SIDE, "pop"],
    weight=2,
)
def append_pop(kit: Kit) -> None:
    _race(kit, "append", "pop")


@registry.clause(
    "append-replace",
    "A turn stored while the messages are replaced is behind the new ones or gone with the old ones, as a whole.",
    incident="set_messages deletes, then inserts: a turn in between stands before the messages that replaced it.",
    needs=[*SIDE_BY_SIDE, "replace"],
    weight=2,
)
def append_replace(kit: Kit) -> None:
    _race(kit, "append", "replace")


@registry.clause(
    "replace-replace",
    "Of two replacements at once one comes last, and its messages are there, and no others.",
    incident="Two compactors call set_messages at once: the session has both summaries, and both copies of the rest.",
    needs=[*SIDE_BY_SIDE, "replace"],
    weight=2,
)
def replace_replace(kit: Kit) -> None:
    _race(kit, "replace", "replace")


@registry.clause(
    "killed-in-pop",
    "A process killed at any driver call of a pop has taken the last message back or not, and touched nothing else.",
    incident="A pop that deletes all and writes back the rest: killed in between, the conversation is gone.",
    needs=["processes", "pop"],
    weight=2,
)
def killed_in_pop(kit: Kit) -> None:
    _killed_in(kit, "pop")


def _killed_in(kit: Kit, operation: str) -> None:
    reader = kit.open("reader")

    def killed_at(n: int, session: str) -> bool:
        turns = kit.turns(3)
        reader.values(*(Step("append", session, (turn,)) for turn in turns))
        store, step = kit.open("killed", watched=True), _step(kit, operation, session)
        store.worker.send(store.job(step, stop=Stop(n, "kill")))
        try:
            kit.report(store.worker, Done)
            died = False
        except WorkerDied:
            died = True
        before = [sent.content for turn in turns for sent in turn]
        found = [seen.content for seen in reader.read(session)]
        allowed = (before, _after(before, [step]))
        kit.check(found in allowed, f"killed in {step.op} of {before}: {found} is left", session=session)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls" if points else "no driver call is visible")


@registry.clause(
    "delete-message",
    "Deleting one message by its place deletes that one, and no other; a place that is not there deletes nothing.",
    incident="LlamaIndex: after a deletion places are off by one, and the next deletion takes the wrong message.",
    needs=["delete_message"],
)
def delete_message(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 6)
    messages: list[SentMessage] = [sent for turn in turns for sent in turn]
    for place in (1, 3, 0):
        del messages[place]
        store.call("delete_message", session, place)
        kit.same(store.read(session), [messages], f"the message at place {place} was deleted", session=session)
    outcome: Outcome = store.take(Step("delete_message", session, (99,)))
    kit.same(store.read(session), [messages], f"there is no place 99 ({outcome.fault or 'no error'})", session=session)
    turn = kit.turn()
    store.append(session, turn)
    kit.same(store.read(session), [messages, turn], "one turn was stored after deletions", session=session)


@registry.clause(
    "delete-delete",
    "Two callers that delete a message by its place at once delete two, one after the other.",
    incident="The list is read, shortened and stored: of two deletions at once, one message that was deleted stays.",
    needs=[*SIDE_BY_SIDE, "delete_message"],
    weight=2,
)
def delete_delete(kit: Kit) -> None:
    _race(kit, "delete_message", "delete_message")


@registry.clause(
    "append-delete",
    "A message that is deleted by its place while a turn is stored is gone, and the turn is kept.",
    incident="A deletion that writes back the list without one item: the turn that came in between is gone.",
    needs=[*SIDE_BY_SIDE, "delete_message"],
    weight=2,
)
def append_delete(kit: Kit) -> None:
    _race(kit, "append", "delete_message")


@registry.clause(
    "killed-in-delete-message",
    "A process killed at any driver call of a deletion has deleted that one message or not, and touched nothing else.",
    incident="A deletion that clears the list and writes back the rest: killed in between, the conversation is gone.",
    needs=["processes", "delete_message"],
    weight=2,
)
def killed_in_delete_message(kit: Kit) -> None:
    _killed_in(kit, "delete_message")
