"""Clauses of operations that are refused: not by mistake of the caller, but because something is old or was refused.

The runner does the rest: a clause whose operation was refused every time is untested (kit/answers.py).
"""

from __future__ import annotations

from everturn.testing.contract.snapshots import SNAPSHOTS
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential", since=2)
LATER_SNAPSHOTS = 12
LATER_TURNS = 30


@registry.clause(
    "old-snapshots",
    "A snapshot can be rolled back to however many turns and snapshots came after it.",
    incident="Only the latest ten snapshots are kept, and nobody is told: the one from before the mistake is gone.",
    needs=SNAPSHOTS,
)
def old_snapshots(kit: Kit) -> None:
    store, session, turns = kit.open("A"), kit.session(), kit.turns(2)
    store.values(*(Step("append", session, (turn,)) for turn in turns))
    old = store.save_snapshot(session)
    later = [kit.turn() for _ in range(LATER_SNAPSHOTS)]
    steps = [step for turn in later for step in (Step("append", session, (turn,)), Step("save_snapshot", session))]
    second = store.values(*steps)[1]
    store.values(*(Step("append", session, (kit.turn(),)) for _ in range(LATER_TURNS)))
    since = f"{LATER_TURNS} turns and {LATER_SNAPSHOTS} snapshots later"
    other = kit.open("B")
    for instance, snapshot, expected in ((store, old, turns), (other, second, [*turns, later[0]]), (other, old, turns)):
        instance.rollback(session, snapshot)
        kit.same(instance.read(session), expected, f"it was rolled back to a snapshot, {since}", session=session)
