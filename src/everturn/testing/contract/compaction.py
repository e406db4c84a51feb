"""Clauses of compaction: a summary takes the place of the oldest turns, and a model takes its time to write it."""

from __future__ import annotations

from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.races.slow_compaction import (
    LOCKED,
    LONG,
    acknowledged,
    begin_compaction,
    check_prompt,
    compaction_step,
    contents,
    long_session,
    prompt_of,
    read_prompt,
    stop_beside,
    unanswered,
)
from everturn.testing.races.sweep import stop_at_every_call
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Paused, Step, Stop

registry = ClauseRegistry("compaction", since=2)


# --- one caller ------------------------------------------------------------------------------------------------------


@registry.clause(
    "compaction",
    "After a compaction every turn is in view or in the summary, once; the next compaction has the summary before it.",
    incident="A summary of the latest 20 messages takes the place of all 200, and the next one forgets the first.",
    needs=["compact"],
)
def compaction(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session, turns = long_session(kit, store)
    written = list(turns)
    for number in range(3):
        store.value(compaction_step(kit, session))
        prompt = read_prompt(other, session)
        check_prompt(kit, prompt, written, f"compaction {number + 1} ended", session=session)
        if not prompt.summarised:
            raise Untested(f"a compaction of {len(written)} turns left all of them in view")
        written += long_session(kit, store, session)[1]
    check_prompt(kit, read_prompt(other, session), written, "turns followed a compaction", session=session)


@registry.clause(
    "compaction-after-others",
    "A compaction covers, or leaves, the turns that other processes wrote before it.",
    incident="A session object compacts the list that it remembers: turns of another worker are deleted unread.",
    needs=["compact", "processes"],
)
def compaction_after_others(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session, turns = long_session(kit, store)
    written = list(turns)
    for _ in range(3):
        store.value(compaction_step(kit, session))
        written += long_session(kit, other, session, turns=3)[1]
        written += long_session(kit, store, session, turns=3)[1]
    store.value(compaction_step(kit, session))
    check_prompt(kit, read_prompt(other, session), written, "two processes wrote in turns", session=session)


# --- while the model works -------------------------------------------------------------------------------------------


@registry.clause(
    "compaction-append",
    "Turns that are acknowledged during a compaction stay, whenever it asks, reads or writes.",
    incident="openai-agents-python#4679: items written while the model summarised were deleted. odysseus#1940: a "
    "memory tidy of 120 seconds erased what was added meanwhile.",
    needs=["compact", "processes"],
    weight=3,
)
def compaction_append(kit: Kit) -> None:
    store, other, reader = kit.open("A", watched=True), kit.open("B"), kit.open("reader")
    for _ in range(2):
        session, turns = long_session(kit, reader)
        under_way = begin_compaction(kit, store, session)
        steps = [Step("append", session, (kit.turn(),)) for _ in range(3)]
        outcomes = under_way.meanwhile(other, *steps)
        under_way.finish()
        written = [*turns, *acknowledged(steps, outcomes)]
        story = "turns were stored while the model summarised"
        check_prompt(
            kit, read_prompt(reader, session), written, story, session=session, maybe=unanswered(steps, outcomes)
        )

    def stopped_at(n: int, session: str) -> bool:
        _, turns = long_session(kit, reader, session)
        step = Step("append", session, (kit.turn(),))
        at, _, outcome = stop_beside(kit, store, compaction_step(kit, session), n, other, step)
        if at is not None:
            maybe = [] if outcome.ok else contents([step.args[0]])
            written = [*turns, step.args[0]] if outcome.ok else turns
            story = f"a turn was stored while a compaction was at {at}"
            check_prompt(kit, read_prompt(reader, session), written, story, session=session, maybe=maybe)
        return at is not None

    points = stop_at_every_call(kit, stopped_at)
    kit.notes.append(f"beside the model, and at {points} driver calls")


@registry.clause(
    "compaction-read",
    "A reader during a compaction sees every turn once: itself, or in the summary.",
    incident="A compaction clears the session and writes it again: a request in between is answered without a memory.",
    needs=["compact", "processes"],
    weight=3,
)
def compaction_read(kit: Kit) -> None:
    store, reader = kit.open("A", watched=True), kit.open("reader", watched=True)
    session, turns = long_session(kit, reader)
    under_way = begin_compaction(kit, store, session)
    (seen,) = under_way.meanwhile(reader, Step("prompt", session))
    under_way.finish()
    if seen.ok:
        check_prompt(kit, prompt_of(seen.value), turns, "it was read while the model summarised", session=session)

    def compaction_stopped_at(n: int, session: str) -> bool:
        _, turns = long_session(kit, reader, session)
        prompt = Step("prompt", session)
        at, _, outcome = stop_beside(kit, store, compaction_step(kit, session), n, reader, prompt)
        if outcome.ok:
            story = f"it was read while a compaction was at {at}"
            check_prompt(kit, prompt_of(outcome.value), turns, story, session=session)
        return at is not None

    def read_stopped_at(n: int, session: str) -> bool:
        _, turns = long_session(kit, reader, session)
        at, outcome, _ = stop_beside(kit, reader, Step("prompt", session), n, store, compaction_step(kit, session))
        if outcome.ok:
            story = f"it was compacted while a read was at {at}"
            check_prompt(kit, prompt_of(outcome.value), turns, story, session=session)
        return at is not None

    points = stop_at_every_call(kit, read_stopped_at), stop_at_every_call(kit, compaction_stopped_at)
    kit.notes.append(f"stopped at {points[0]} driver calls of a read, and at {points[1]} of a compaction")


@registry.clause(
    "compaction-clear",
    "A session that is cleared while the model summarises stays cleared.",
    incident="A customer asks to be forgotten while a summary is being written: afterwards the summary has it all.",
    needs=["compact", "clear", "processes"],
)
def compaction_clear(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    for later in ([], kit.turns(1), kit.turns(LONG)):
        session, _ = long_session(kit, other)
        under_way = begin_compaction(kit, store, session)
        steps = [Step("clear", session), *(Step("append", session, (turn,)) for turn in later)]
        outcomes = under_way.meanwhile(other, *steps)
        under_way.finish()
        if not outcomes[0].ok:
            raise Untested(f"it could not be cleared while the model was at work: {outcomes[0].fault}")
        maybe = unanswered(steps[1:], outcomes[1:])
        written = [turn for turn, outcome in zip(later, outcomes[1:], strict=True) if outcome.ok]
        story = "it was cleared while the model summarised"
        check_prompt(kit, read_prompt(other, session), written, story, session=session, maybe=maybe)


@registry.clause(
    "compaction-rollback",
    "A session that is rolled back while the model summarises holds what the snapshot held, in view or in a summary.",
    incident="A wrong answer is rolled back while a summary is written: the summary says it again, for ever.",
    needs=["compact", "save_snapshot", "rollback", "processes"],
)
def compaction_rollback(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    for kept in (2, LONG):
        session, turns = long_session(kit, other, turns=kept)
        snapshot = other.save_snapshot(session)
        long_session(kit, other, session)
        under_way = begin_compaction(kit, store, session)
        (outcome,) = under_way.meanwhile(other, Step("rollback", session, (snapshot,)))
        under_way.finish()
        if not outcome.ok:
            raise Untested(f"it could not be rolled back while the model was at work: {outcome.fault}")
        story = "it was rolled back while the model summarised"
        check_prompt(kit, read_prompt(other, session), turns, story, session=session)


# --- two at once -----------------------------------------------------------------------------------------------------


@registry.clause(
    "compaction-twice",
    "Of two compactions at once every turn is in one summary or in view: the second adds nothing and removes nothing.",
    incident="Two workers end a run at once: two summaries of the same turns, or a summary of turns already removed.",
    needs=["compact", "processes"],
    weight=2,
)
def compaction_twice(kit: Kit) -> None:
    first, second, reader = kit.open("A"), kit.open("B"), kit.open("reader")
    for order in ((0, 1), (1, 0)):
        session, turns = long_session(kit, reader)
        both = [begin_compaction(kit, first, session)]
        second.worker.send(second.job(compaction_step(kit, session), model="pause"))
        if second.worker.poll(LOCKED):
            report = kit.any_report(second.worker)
            later = [kit.turn()]
            reader.append(session, later[0])
            if isinstance(report, Done):
                both[0].finish()
            else:
                for index in order:
                    if index == 0:
                        both[0].finish()
                    else:
                        second.worker.resume()
                        kit.report(second.worker, Done)
        else:
            kit.notes.append("the second compaction waits for the first")
            both[0].finish()
            later = []
            if isinstance(kit.any_report(second.worker), Paused):
                second.worker.resume()
                kit.report(second.worker, Done)
        story = "two compactions ran at once"
        check_prompt(kit, read_prompt(reader, session), [*turns, *later], story, session=session)


@registry.clause(
    "compaction-pays-once",
    "Of compactions at once, one asks its model.",
    incident="Sixteen workers notice at once that a conversation is long, and sixteen summaries are paid for.",
    needs=["compact", "pays_once", "processes"],
)
def compaction_pays_once(kit: Kit) -> None:
    store, others = kit.open("A"), [kit.open("B"), kit.open("C")]
    session, _ = long_session(kit, store)
    under_way = begin_compaction(kit, store, session)
    for other in others:
        other.worker.send(other.job(compaction_step(kit, session)))
    if not all(other.worker.poll(LOCKED) for other in others):
        under_way.finish()
    paid = sum(kit.report(other.worker, Done).model_calls for other in others) + under_way.finish().model_calls
    kit.check(paid == 1, f"three processes compacted a session at once, and {paid} models were asked", session=session)


# --- models and processes that fail ----------------------------------------------------------------------------------


@registry.clause(
    "compaction-model-fails",
    "A model that raises leaves the session as it was, and the next compaction works.",
    incident="The history is removed before the summary is asked for; then the model answers 429.",
    needs=["compact"],
)
def compaction_model_fails(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session, turns = long_session(kit, store)
    done = kit.ask(store.worker, store.job(compaction_step(kit, session), model="fail"), Done)
    if not done.model_calls:
        raise Untested(f"a compaction of {LONG} turns did not ask the model")
    prompt = read_prompt(other, session)
    check_prompt(kit, prompt, turns, "the model raised", session=session)
    kit.check(not prompt.summarised, f"the model raised, and there is a summary ({prompt})", session=session)
    for instance in (other, store):
        instance.value(compaction_step(kit, session))
    prompt = read_prompt(other, session)
    check_prompt(kit, prompt, turns, "the next model answered", session=session)
    kit.check(prompt.summarised, "after a model that raised, no compaction works any more", session=session)


@registry.clause(
    "compaction-killed-in-model",
    "A process killed while its model summarises leaves the session as it was.",
    incident="A deployment during a summary of two minutes: the turns are marked as summarised, by no summary.",
    needs=["compact", "processes"],
)
def compaction_killed_in_model(kit: Kit) -> None:
    reader = kit.open("reader")
    for _ in range(3):
        session, turns = long_session(kit, reader)
        store = kit.open("killed")
        store.worker.send(store.job(compaction_step(kit, session), model="die"))
        try:
            kit.report(store.worker, Done)
            raise Untested(f"a compaction of {LONG} turns did not ask the model")
        except WorkerDied:
            pass
        later = kit.turn()
        prompt = read_prompt(reader, session)
        check_prompt(kit, prompt, turns, "killed while the model summarised", session=session)
        kit.check(not prompt.summarised, f"killed before the model answered: {prompt}", session=session)
        reader.append(session, later)
        story = "a turn was stored after that kill"
        check_prompt(kit, read_prompt(reader, session), [*turns, later], story, session=session)


@registry.clause(
    "killed-in-compaction",
    "A process killed at any driver call of a compaction leaves every turn in view or in the summary, once.",
    incident="A compaction clears the session, then writes the summary: a kill between the two, and nothing is left.",
    needs=["compact", "processes"],
    weight=3,
)
def killed_in_compaction(kit: Kit) -> None:
    reader = kit.open("reader")

    def killed_at(n: int, session: str) -> bool:
        _, turns = long_session(kit, reader, session)
        store = kit.open("killed", watched=True)
        store.worker.send(store.job(compaction_step(kit, session), stop=Stop(n, "kill")))
        try:
            kit.report(store.worker, Done)
            died = False
        except WorkerDied:
            died = True
        story = f"killed at driver call {n} of a compaction" if died else "a compaction ended"
        check_prompt(kit, read_prompt(reader, session), turns, story, session=session)
        later = kit.turn()
        reader.append(session, later)
        story = f"a turn was stored after that: {story}"
        check_prompt(kit, read_prompt(reader, session), [*turns, later], story, session=session)
        return died

    points = stop_at_every_call(kit, killed_at)
    kit.notes.append(f"killed at {points} driver calls")
    if not points:
        raise Untested("no driver call is visible at which a compaction could be killed")
