"""Clauses of resuming: an effect in the world begins once, and is in doubt after a crash. Leases are in resume.py.

races/lost_leases.py has the steps.
"""

from __future__ import annotations

from typing import Any

from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.equality import comes_back
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.lost_leases import begin, begun, fail, finish, once, sweep_all_modes
from everturn.testing.races.sweep import Ended, Race, stop_at_every_call
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Step, Stop

registry = ClauseRegistry("resume", since=2)
RESULTS: tuple[Any, ...] = (
    *(None, "", 0, False, [], {}, "paid", 7, 0.1, True, "null", "0"),
    *([None, {"a": [1, "b"]}], {"id": "x", "n": None}),
)
MANY, QUICK_MANY = 120, 40  # effects that come in between, in the session and in another


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
    "effect-failed",
    "An effect that failed begins again, for one caller; one that is finished stays finished.",
    incident="A bank refuses a payment: no worker can try it again, or all of them do.",
    needs=["effects", "fail_effect"],
)
def effect_failed(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    session = kit.session()
    begun(kit, store, session, "pay", "new")
    store.value(fail(session, "pay", "refused"))
    begun(kit, other, session, "pay", "new", story="it failed")
    for instance in (store, other):
        begun(kit, instance, session, "pay", "started", story="it failed, and was begun again")
    other.value(finish(session, "pay", "paid"))
    store.take(fail(session, "pay", "refused"))  # refused or ignored: it was done
    begun(kit, store, session, "pay", "finished", "paid", story="it was finished, and then said to have failed")


@registry.clause(
    "effect-once",
    "`once` does an effect once: later callers get its result, and what is in doubt is not done again.",
    incident="A helper looks for a result, finds none, and does it: that its worker was killed amid it is not seen.",
    needs=["effects", "once", "processes"],
    weight=2,
)
def effect_once(kit: Kit) -> None:
    store, other, session = kit.open("A"), kit.open("B"), kit.session()
    for instance, times in ((store, 1), (other, 0), (store, 0)):
        told = tuple(instance.value(once(session, "pay", "paid")))
        kit.check(told == ("paid", times), f"it returned {told[0]!r} and did it {told[1]} times, not {times}")
    killed = kit.open("killed")
    begun(kit, killed, session, "mail", "new")
    killed.kill()
    kit.refused(other, once(session, "mail", "sent"), "its worker was killed: nobody knows whether it was done")
    begun(kit, store, session, "mail", "started", story="its worker was killed, and another wanted to do it")

    def prepare(_: Instance) -> Race:
        session = kit.session()
        return Race(session, (once(session, "pay", "A"),), (once(session, "pay", "B"),))

    def after(_: Instance, session: str, ended: list[Ended]) -> None:
        times = sum(outcome.value[1] for _, outcome in ended if outcome.ok)
        kit.check(times < 2, "two workers did one effect at once", session=session)

    sweep_all_modes(kit, prepare, after)


@registry.clause(
    "effect-race",
    "Of workers that begin an effect at once, one is told that it is new.",
    incident='"Resume Means Resume" (arXiv:2608.03836): k processes that resume one interrupt fire its effect k times.',
    needs=["effects", "processes|threads|tasks"],
    weight=2,
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

    sweep_all_modes(kit, prepare, after)


@registry.clause(
    "effect-in-doubt",
    "An effect whose worker was killed before it ended stays started: nobody is told that it is new.",
    incident="A worker is killed after the refund and before it could say so: the next one refunds again.",
    needs=["effects", "processes"],
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


@registry.clause(
    "effect-names",
    "A session and a key name one effect: neither case, white space, length nor where they meet is passed over.",
    incident="The key of an effect is cut to 64 characters: the second of two refunds is told that it was paid.",
    needs=["effects"],
)
def effect_names(kit: Kit) -> None:
    store, session = kit.open(), kit.session()
    keys = ("pay", "Pay", "PAY", " pay", "pay ", "pay:1", "pay:2", *(f"{'pay-' * 80}{end}" for end in "ab"), "p", "%")
    accepted = [key for key in keys if _is_new(kit, store, session, key)]
    for separator in (":", "/", "-", "_", "|", ".", ""):
        name = kit.session()
        for one, key in ((f"{name}{separator}x", "1"), (name, f"x{separator}1")):
            _is_new(kit, store, one, key)
    for key in accepted:
        store.value(finish(session, key, f"of {key}"))
    for key in accepted:
        begun(kit, store, session, key, "finished", f"of {key}", story=f"{len(accepted)} effects with keys alike")
    kit.notes.append(f"{len(accepted)} of {len(keys)} keys were accepted")


def _is_new(kit: Kit, store: Instance, session: str, key: str) -> bool:
    """Begin an effect that nobody began. Returns False if the store refuses the name; Broken if it was begun."""
    told = store.take(begin(session, key))
    if not told.ok:
        return False
    story = f"nobody had begun the effect {key!r:.40} of session {session!r}, and it is told {told.value}"
    kit.check(told.value[0] == "new", story, session=session)
    return True


@registry.clause(
    "effect-results",
    "The result of an effect comes back equal, also one that counts as false; the effect stays finished.",
    incident='"if effect.result": a payment that returned nothing, or 0, begins again with every retry.',
    needs=["effects"],
)
def effect_results(kit: Kit) -> None:
    store, other, session = kit.open("A"), kit.open("B"), kit.session()
    refused = 0
    for number, result in enumerate(RESULTS):
        key = f"effect {number}"
        store.value(begin(session, key))
        if not store.take(finish(session, key, result)).ok:
            refused += 1
            continue
        status, found = other.value(begin(session, key))
        story = f"an effect was finished with {result!r}, and it is told {(status, found)!r:.120}"
        kit.check(status == "finished" and comes_back(result, found), story, session=session)
    kit.notes.append(f"{len(RESULTS) - refused} of {len(RESULTS)} results were accepted")


@registry.clause(
    "effects-are-kept",
    "An effect is remembered however many others came since, in its session and in others.",
    incident="The latest fifty effects of all sessions: a retry after a busy hour sends the mail again.",
    needs=["effects"],
)
def effects_are_kept(kit: Kit) -> None:
    store, session, elsewhere = kit.open(), kit.session(), kit.session()
    store.values(begin(session, "pay"), finish(session, "pay", "paid"), begin(session, "mail"))
    many = QUICK_MANY if kit.quick else MANY
    for number in range(many):
        for one in (session, elsewhere):
            store.values(begin(one, f"effect {number}"), finish(one, f"effect {number}", "done"))
    story = f"{2 * many} other effects came since"
    begun(kit, store, session, "pay", "finished", "paid", story=story)
    begun(kit, store, session, "mail", "started", story=story)
