"""Clauses of sequences: many operations in a row, compared with a model after each, and the retries that come late.

testing/kit/walks.py has the model, the random walks, and shrinks the one that fails.
"""

from __future__ import annotations

from everturn.testing.contract.sequential import session_with_turns
from everturn.testing.kit.clause import Broken, ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.walks import Walker, random_walk, shortest
from everturn.testing.results import Violation
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential", since=2)
WALKS, STEPS = 60, 40
QUICK_WALKS, QUICK_STEPS = 5, 50


@registry.clause(
    "sequences",
    "Whatever was called before, in whatever order, on whatever session: a read has what the calls lead to.",
    incident="A snapshot named after the length of the session: after a clear, another state has the same name.",
    weight=3,
)
def sequences(kit: Kit) -> None:
    walker = Walker(kit)
    walks, steps = (QUICK_WALKS, QUICK_STEPS) if kit.quick else (WALKS, STEPS)
    taken = done = 0
    while done < walks and (done < QUICK_WALKS or kit.time_left()):
        walk = random_walk(kit, steps)
        failure = walker.failure_of(walk)
        if failure is not None:
            walk, failure = shortest(walker, walk, failure)
            raise Broken([Violation("differs", failure.story, session=failure.session)])
        done += 1
        taken += len(walk)
    kit.notes.append(f"{done} random walks of {taken} calls in all")


@registry.clause(
    "late-retry",
    "A retry with the key of a turn that was trimmed or cleared since stores nothing.",
    incident="The user presses reset; the proxy sends the turn before it once more, and the old question is answered.",
    needs=["key", "clear|trim"],
)
def late_retry(kit: Kit) -> None:
    for removal in (one for one in ("clear", "trim") if kit.offers(one)):
        store, session, _ = session_with_turns(kit)
        turn, later = kit.turn(), kit.turn()
        store.append(session, turn, key="late")
        store.append(session, later)
        store.value(Step("clear", session) if removal == "clear" else Step("trim", session, (len(later),)))
        left = store.read(session)
        store.append(session, turn, key="late")
        kit.check(
            store.read(session) == left,
            f"a turn was removed by {removal}, and a late retry with its key brought it back",
            session=session,
        )


@registry.clause(
    "versions-do-not-return",
    "A version that was current once is never current again: a change that names it is refused, whatever was removed.",
    incident="The version is the number of rows: after a clear and three turns, a worker from before it may write.",
    needs=["expected_version", "clear|trim|rollback"],
)
def versions_do_not_return(kit: Kit) -> None:
    removals = [one for one in ("clear", "trim", "rollback") if kit.offers(one)]
    for removal in removals:
        store, session = kit.borrow(), kit.session()
        snapshot = None
        versions = []
        for number in range(4):
            versions.append(store.append(session, kit.turn()))
            if number == 1 and removal == "rollback":
                snapshot = store.save_snapshot(session)
        step = {
            "clear": Step("clear", session),
            "trim": Step("trim", session, (len(kit.turn()),)),
            "rollback": Step("rollback", session, (snapshot,)),
        }[removal]
        store.value(step)
        for _ in range(3):
            for version in versions:
                late = Step("append", session, (kit.turn(),), {"expected_version": version})
                kit.refused(store, late, f"its version was current before the {removal}")
            version = store.append(session, kit.turn())
            store.append(session, kit.turn(), expected_version=version)  # the current one is as good as before
