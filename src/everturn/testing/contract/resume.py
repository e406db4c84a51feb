"""Clauses of resuming: one worker at a time has the lease of a session. Those of effects are in effects.py.

races/lost_leases.py has the steps and the waiting.
"""

from __future__ import annotations

from itertools import pairwise

from everturn.testing.contract.isolation_of_parts import alike
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.lost_leases import (
    LONG,
    SHORT,
    append_with_lease,
    release_lease,
    renew_in_time,
    renew_lease,
    stop_with_lease,
    sweep_all_modes,
    take_lease,
    take_when_free,
)
from everturn.testing.races.sweep import Ended, Race, stop_at_every_call
from everturn.testing.workers.messages import Done, Step

registry = ClauseRegistry("resume", since=2)


@registry.clause(
    "lease",
    "A lease that is held is refused to others; released or run out, the next one has it, with a greater token.",
    incident="OpenHands software-agent-sdk#2966: two servers work on one conversation, each sure that it is its own.",
    needs=["lease"],
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

    sweep_all_modes(kit, prepare, after)


@registry.clause(
    "lease-sleeper",
    "A worker that slept while another got its lease can store nothing with it, whether or not anything else changed.",
    incident="A worker is paused for a minute (a suspended machine, a busy host), wakes up, and writes its answer "
    "below that of the worker that took over.",
    needs=["fence", "processes"],
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


@registry.clause(
    "lease-renewed",
    "A lease that is renewed is held beyond its first time; one that another worker has by now cannot be renewed.",
    incident="A heartbeat prolongs the lock of whoever holds it: a worker that slept goes on as if it were its own.",
    needs=["lease", "processes"],
)
def lease_renewed(kit: Kit) -> None:
    worker, other, third = kit.open("A"), kit.open("B"), kit.open("C")
    session, elsewhere, lost = kit.session(), kit.session(), kit.session()
    worker.value(take_lease(session))
    if not worker.value(Step("can_renew", session)):
        raise NotOffered("its leases have no `renew(seconds)`")
    worker.values(renew_lease(session, LONG), release_lease(session))
    renew_in_time(worker, session)
    # One as short that was taken later has run out: so has the first time of this one.
    other.value(take_lease(elsewhere, SHORT))
    take_when_free(kit, third, elsewhere)
    kit.refused(other, take_lease(session), "its holder has renewed it")
    if kit.offers("fence"):
        worker.value(append_with_lease(session, kit.turn()))
    worker.value(take_lease(lost, SHORT))
    take_when_free(kit, other, lost)
    kit.refused(worker, renew_lease(lost, LONG), "another worker has taken it by now")
    kit.refused(third, take_lease(lost), "another worker holds it, and one that held it before wanted to renew it")
    other.value(release_lease(lost))
    third.value(take_lease(lost))


@registry.clause(
    "lease-of-a-process",
    "A lease that is held is refused to everybody, also on the same instance and in the same process.",
    incident="A lease that knows its holder by host and process id: two requests of one worker both have it.",
    needs=["lease"],
)
def lease_of_a_process(kit: Kit) -> None:
    store = kit.open("A")
    second = kit.open("B", beside=store)
    for holder, asker in ((store, store), (store, second), (second, store)):
        session = kit.session()
        holder.value(take_lease(session))
        holder.value(release_lease(session))
        holder.value(take_lease(session))
        kit.refused(asker, take_lease(session), "somebody of the same process holds it")


@registry.clause(
    "isolation-of-leases",
    "A lease is of one session, however alike the ids are: others are free, and releasing theirs frees nothing.",
    incident="The lock is named by the id in lower case: a user waits for another one, whose lock they then release.",
    needs=["lease"],
)
def isolation_of_leases(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    first, *others = alike(kit)
    store.value(take_lease(first))
    free = 0
    for name in others:
        if not other.take(Step("read", name)).ok:
            continue  # the id is refused
        taken = other.take(take_lease(name))
        kit.check(taken.ok, f"session {first!r} is leased, and {name!r} cannot be: {taken.fault}", session=name)
        other.value(release_lease(name))
        free += 1
        kit.refused(other, take_lease(first), f"it is held, and the lease of {name!r} was released")
    kit.notes.append(f"{free} of {len(others)} ids were accepted")


@registry.clause(
    "lease-after-changes",
    "A lease that is held stays held, whatever is done to the session's messages: cleared, trimmed, rolled back.",
    incident="clear deletes every row of the session, the lease among them: a second worker begins while one works.",
    needs=["lease", "clear|trim|rollback"],
)
def lease_after_changes(kit: Kit) -> None:
    store, other = kit.open("A"), kit.open("B")
    for change in ("trim", "rollback", "clear", "undo"):
        if not kit.offers(change) or (change == "undo" and not kit.offers("clear")):
            continue
        session = kit.session()
        store.append(session, kit.turn())
        snapshot = store.save_snapshot(session) if change == "rollback" else None
        store.append(session, kit.turn())
        store.value(take_lease(session))
        if change == "undo":
            other.clear(session)
        arguments = {"trim": (len(kit.turn()),), "rollback": (snapshot,)}.get(change, ())
        other.take(Step(change, session, arguments))  # a store may refuse it to those who hold no lease
        kit.refused(other, take_lease(session), f"its holder has not released it, and {change} was called")
