"""Clauses of resuming: one worker at a time has the lease of a session, and an effect in the world begins once.

races/resumes.py has the steps and the waiting.
"""

from __future__ import annotations

from itertools import pairwise

from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.resumes import (
    SHORT,
    append_with_lease,
    begin,
    begun,
    finish,
    release_lease,
    stop_with_lease,
    take_lease,
    take_when_free,
)
from everturn.testing.races.sweep import After, Ended, Prepare, Race, Sweep, modes, stop_at_every_call
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Step, Stop

registry = ClauseRegistry("resume")


# --- leases ----------------------------------------------------------------------------------------------------------


@registry.clause(
    "lease",
    "A lease that is held is refused to others; released or run out, the next one has it, with a greater token.",
    incident="OpenHands software-agent-sdk#2966: two servers work on one conversation, each sure that it is its own.",
    needs=["lease"],
    hint="Count the token up in the statement that takes the lease; never make it of a clock.",
)
def lease(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session, elsewhere = kit.session(), kit.session()
    tokens = [store.value(take_lease(session))]
    kit.refused(other, take_lease(session), "another worker holds it")
    other.value(take_lease(elsewhere))
    store.value(release_lease(session))
    tokens.append(other.value(take_lease(session)))
    kit.refused(store, take_lease(session), "another worker holds it")
    other.value(release_lease(session))
    tokens.append(store.value(take_lease(session, SHORT)))
    tokens.append(take_when_free(kit, other, session))
    numbers = [token for token in tokens if isinstance(token, int)]
    grows = all(one < following for one, following in pairwise(numbers))
    kit.check(grows, f"four leases, one after the other, have the tokens {numbers}", session=session)


@registry.clause(
    "lease-race",
    "Of workers that take a lease at once, one has it.",
    incident="Is it free? Then write my name: two workers ask at once, and both write.",
    needs=["lease", "processes|threads|tasks"],
    weight=2,
    hint="Ask and take in one conditional statement.",
)
def lease_race(kit: Kit) -> None:
    def prepare(_: Instance) -> Race:
        session = kit.session()
        return Race(session, (take_lease(session),), (take_lease(session),))

    def after(reader: Instance, session: str, ended: list[Ended]) -> None:
        holders = sum(outcome.ok for _, outcome in ended)
        kit.check(holders < 2, "two workers took the lease at once, and both have it", session=session)
        if holders:
            kit.refused(reader, take_lease(session), "one of two workers that took it at once holds it")

    _sweep(kit, prepare, after)


@registry.clause(
    "lease-sleeper",
    "A worker that slept while another got its lease can store nothing with it, whether or not anything else changed.",
    incident="A worker is paused for a minute (a suspended machine, a busy host), wakes up, and writes its answer "
    "below that of the worker that took over.",
    needs=["fence", "processes"],
    hint="Compare the token of the lease in the transaction that writes.",
)
def lease_sleeper(kit: Kit) -> None:
    sleeper, other = kit.open("sleeper"), kit.open("B")
    for then in ("nothing", "append", "release"):
        session, turns = kit.session(), kit.turns(3)
        other.append(session, turns[0])
        sleeper.value(take_lease(session, SHORT))
        with sleeper.worker.asleep():
            sleeper.worker.send(sleeper.job(append_with_lease(session, turns[1])))
            take_when_free(kit, other, session)
            if then == "append":
                other.value(append_with_lease(session, turns[2]))
            elif then == "release":
                other.value(release_lease(session))
        outcome = kit.report(sleeper.worker, Done).outcomes[0][0]
        story = "a worker slept (SIGSTOP) while another took its lease, and woke up to store a turn with it"
        kit.check(not outcome.ok, f"{story}: it was accepted", session=session)
        kit.same(other.read(session), [turns[0], *turns[2:][: then == "append"]], story, session=session)


@registry.clause(
    "lease-fence",
    "From the moment another worker has the lease, nothing is stored with the old one, wherever its call was stopped.",
    incident="The lease is looked at, then the turn is written: the worker sleeps between the two.",
    needs=["fence", "processes"],
    weight=2,
    hint="Compare the token of the lease in the transaction that writes.",
)
def lease_fence(kit: Kit) -> None:
    store, other = kit.open("A", watched=True), kit.open("B")
    taken: list[str] = []  # sessions whose lease was taken while its holder's call was stopped

    def stopped_at(n: int, session: str) -> bool:
        turns = kit.turns(2)
        other.append(session, turns[0])
        store.value(take_lease(session, SHORT))
        at, seen = stop_with_lease(kit, store, append_with_lease(session, turns[1]), n, other)
        if seen is not None:
            taken.append(session)
            later = [message.content for message in other.read(session)]
            story = f"a call with a lease was at {at} while another worker took the lease and read the session"
            kit.check(later == seen, f"{story}: it held {seen}, and then {later}", session=session)
        return at is not None

    points = stop_at_every_call(kit, stopped_at)
    kit.notes.append(f"stopped at {points} driver calls; another worker took the lease at {len(taken)} of them")


@registry.clause(
    "lease-release",
    "A worker that releases a lease which another has by now frees nothing.",
    incident="DEL lock: a worker that took too long deletes the lock of the next one, and a third comes in.",
    needs=["lease", "processes"],
    hint="Release only where the token is one's own, in one conditional statement.",
)
def lease_release(kit: Kit) -> None:
    late, holder, third = kit.open("late"), kit.open("B"), kit.open("C")
    session = kit.session()
    late.value(take_lease(session, SHORT))
    take_when_free(kit, holder, session)
    late.take(release_lease(session))  # an error is as good as silence
    kit.refused(third, take_lease(session), "another worker holds it, and one that held it before has released it")
    if kit.offers("fence"):
        holder.value(append_with_lease(session, kit.turn()))
    holder.value(release_lease(session))
    third.value(take_lease(session))


# --- effects ---------------------------------------------------------------------------------------------------------


@registry.clause(
    "effect",
    "One caller is told that an effect is new; later ones see it started, and once it is finished its result.",
    incident="crewAI#5802: a task is run again, and with it the payments, the mails and the trades that it made.",
    needs=["effects"],
)
def effect(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session, elsewhere = kit.session(), kit.session()
    begun(kit, store, session, "pay", "new")
    for instance in (other, store):
        begun(kit, instance, session, "pay", "started")
    begun(kit, other, session, "mail", "new")
    begun(kit, other, elsewhere, "pay", "new")
    store.value(finish(session, "pay", "paid"))
    store.append(session, kit.turn())
    for instance in (other, store):
        begun(kit, instance, session, "pay", "finished", "paid")
    other.take(finish(session, "pay", "paid twice"))  # refused or ignored: the first result stands
    begun(kit, store, session, "pay", "finished", "paid")
    begun(kit, store, session, "mail", "started")


@registry.clause(
    "effect-without-begin",
    "An effect that was never begun cannot be finished.",
    incident="A result comes under a mistyped key: the effect stays open, and one that nobody began is done.",
    needs=["effects"],
)
def effect_without_begin(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session = kit.session()
    for prepared in ((), (Step("append", session, (kit.turn(),)), begin(session, "pay"))):
        store.values(*prepared)
        kit.refused(store, finish(session, "mail", "sent"), "it was never begun")
    begun(kit, other, session, "mail", "new")
    begun(kit, other, session, "pay", "started")


@registry.clause(
    "effect-race",
    "Of workers that begin an effect at once, one is told that it is new.",
    incident='"Resume Means Resume" (arXiv:2608.03836): k processes that resume one interrupt fire its effect k times.',
    needs=["effects", "processes|threads|tasks"],
    weight=2,
    hint="Let a unique key decide: INSERT, and look who is there if it was refused.",
)
def effect_race(kit: Kit) -> None:
    def prepare(_: Instance) -> Race:
        session = kit.session()
        return Race(session, (begin(session, "pay"),), (begin(session, "pay"),))

    def after(reader: Instance, session: str, ended: list[Ended]) -> None:
        told = [outcome.value[0] for _, outcome in ended if outcome.ok]
        kit.check(told.count("new") < 2, "two workers began one effect at once, and both do it", session=session)
        kit.check("new" in told or len(told) < 2, f"two began an effect at once, and none does it: {told}")
        if "new" in told:
            begun(kit, reader, session, "pay", "started")

    _sweep(kit, prepare, after)


@registry.clause(
    "effect-in-doubt",
    "An effect whose worker was killed before it ended stays started: nobody is told that it is new.",
    incident="A worker is killed after the refund and before it could say so: the next one refunds again.",
    needs=["effects", "processes"],
    hint="A dead worker says nothing about what it did: leave it to the caller, who can look.",
)
def effect_in_doubt(kit: Kit) -> None:
    session, open_before = kit.session(), kit.open("B")
    killed = kit.open("killed")
    begun(kit, killed, session, "pay", "new")
    killed.kill()
    opened_after = kit.open("C")
    for other in (opened_after, open_before, opened_after):
        begun(kit, other, session, "pay", "started", story="its worker was killed")
    open_before.value(finish(session, "pay", "paid"))
    begun(kit, opened_after, session, "pay", "finished", "paid", story="its worker was killed, and another ended it")


@registry.clause(
    "killed-in-effect",
    "A process killed at any driver call of begin or finish leaves the effect before it or after it.",
    incident="A finish deletes the row and inserts another: killed between the two, and the effect is new again.",
    needs=["effects", "processes"],
    weight=2,
)
def killed_in_effect(kit: Kit) -> None:
    reader = kit.open("reader")

    def killed(step: Step, n: int) -> bool:
        store = kit.open("killed", watched=True)
        store.worker.send(store.job(step, stop=Stop(n, "kill")))
        try:
            kit.report(store.worker, Done)
        except WorkerDied:
            return True
        store.close()
        return False

    def in_begin(n: int, session: str) -> bool:
        died = killed(begin(session, "pay"), n)
        told, _ = reader.value(begin(session, "pay"))
        allowed = {"new", "started"} if died else {"started"}
        story = f"killed at driver call {n} of begin" if died else "it was begun"
        kit.check(told in allowed, f"{story}, and it is {told}", session=session)
        begun(kit, reader, session, "pay", "started", story=f"{story}, and begun again")
        return died

    def in_finish(n: int, session: str) -> bool:
        reader.value(begin(session, "pay"))
        died = killed(finish(session, "pay", "paid"), n)
        told, result = reader.value(begin(session, "pay"))
        story = f"killed at driver call {n} of finish" if died else "it was finished"
        whole = (told, result) == ("finished", "paid") or (died and told == "started")
        kit.check(whole, f"{story}, and it is {told}, with the result {result!r}", session=session)
        if told == "started":
            reader.value(finish(session, "pay", "paid"))
            begun(kit, reader, session, "pay", "finished", "paid", story=f"{story}, and finished by another")
        return died

    points = stop_at_every_call(kit, in_finish), stop_at_every_call(kit, in_begin)
    kit.notes.append(f"killed at {points[1]} driver calls of begin, and at {points[0]} of finish")
    if not any(points):
        raise Untested("no driver call is visible at which begin or finish could be killed")


@registry.clause(
    "effect-rollback",
    "No rollback, undo, trim or clear forgets an effect: the world is not rolled back.",
    incident="A conversation is rolled back to before the refund, the agent answers anew, and refunds again.",
    needs=["effects", "rollback|clear|trim"],
    hint="Effects belong to the session, not to its history.",
)
def effect_rollback(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session = kit.session()
    store.append(session, kit.turn())
    snapshot = store.save_snapshot(session) if kit.offers("rollback") else None
    store.values(Step("append", session, (kit.turn(),)), begin(session, "pay"), begin(session, "mail"))
    store.value(finish(session, "pay", "paid"))
    ways = {
        "rollback": Step("rollback", session, (snapshot,)),
        "undo": Step("undo", session),
        "trim": Step("trim", session, (len(kit.turn()),)),
        "clear": Step("clear", session),
    }
    for name, step in ways.items():
        if not kit.offers(name) or (name == "undo" and snapshot is None):
            continue
        store.value(step)
        begun(kit, other, session, "pay", "finished", "paid", story=f"after {name}")
        begun(kit, other, session, "mail", "started", story=f"after {name}")


def _sweep(kit: Kit, prepare: Prepare, after: After) -> None:
    for mode in modes(kit):
        sweep = Sweep(kit, mode)
        sweep.run(prepare, after)
        kit.notes.append(sweep.describe())
