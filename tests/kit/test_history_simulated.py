"""A correct store, simulated with many workers, faults and kills, raises no alarm; one broken read of it does.

EVERTURN_DEEP=1 plays a hundred times as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.testing.history import judge
from everturn.testing.history.parse import NEVER, RecordedCall, pair
from everturn.testing.results import Event, ViolationKind
from tests.kit.history_tools import Plan, simulate

EXAMPLES = 30_000 if os.environ.get("EVERTURN_DEEP") else 200
# The same examples each time, unless it goes deep: a red test must be red for everyone.
played = settings(max_examples=EXAMPLES, deadline=None, derandomize=not os.environ.get("EVERTURN_DEEP"))
seeds = st.integers(0, 2**32)

FAULTS = {"raises": 0.05, "refuses": 0.05, "kills": 0.05, "late": 0.5, "keyed": 0.3}
PLAIN = {"append": 6, "read": 3}
DESTRUCTIVE = {"snapshot": 1, "rollback": 1, "clear": 1, "trim": 1, "replace": 1}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any mix of calls, workers and faults."""
    extra = draw(st.sets(st.sampled_from([*DESTRUCTIVE, "undo", "erase"])))
    return Plan(
        workers=draw(st.integers(1, 6)),
        calls=draw(st.integers(1, 60)),
        weights=PLAIN | dict.fromkeys(extra, 1),
        sizes=draw(st.sampled_from([(1,), (2,), (1, 2, 3)])),
        cuts_units=draw(st.booleans()),
        plans_trims=draw(st.booleans()),
        **(FAULTS if draw(st.booleans()) else {}),
    )


@played
@given(plans(), seeds)
def test_a_correct_store_raises_no_alarm(plan: Plan, seed: int) -> None:
    verdict = judge(simulate(plan, seed))
    assert verdict.counts == {}


def test_most_of_it_is_decided() -> None:
    plan = Plan(workers=5, calls=60, weights=PLAIN | DESTRUCTIVE)
    undecided = sum(len(judge(simulate(plan, seed)).undecided) for seed in range(50))
    assert undecided <= 5


# --- one thing goes wrong --------------------------------------------------------------------------------------


class Broken:
    """A history of a correct store in which one thing is about to go wrong."""

    def __init__(self, events: list[Event], chance: Random) -> None:
        self.events = events
        self.chance = chance
        self.calls = pair(events)

    def acknowledged(self) -> list[RecordedCall]:
        return [call for call in self.calls if call.f == "append" and call.outcome == "ok"]

    def reads(self, *, after: int = -1) -> list[RecordedCall]:
        return [call for call in self.calls if call.f == "read" and call.outcome == "ok" and call.begin > after]

    def sees(self, read: RecordedCall, values: tuple[str, ...]) -> None:
        self.events = [
            msgspec.structs.replace(event, values=values) if event is read.completion else event
            for event in self.events
        ]

    def choose(self, calls: list[RecordedCall]) -> RecordedCall | None:
        return self.chance.choice(calls) if calls else None


def without(values: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value for value in values if value not in gone)


def lose(broken: Broken) -> bool:
    """An acknowledged append is gone from every read after it."""
    lost = broken.choose([call for call in broken.acknowledged() if broken.reads(after=call.end)])
    if lost is None:
        return False
    for read in broken.reads():
        broken.sees(read, without(read.values, lost.values))
    return True


def double(broken: Broken) -> bool:
    read = broken.choose([read for read in broken.reads() if read.values])
    if read is None:
        return False
    again = broken.chance.choice(broken.acknowledged()).values if broken.acknowledged() else ()
    again = again if again and again[0] in read.values else read.values[:1]
    broken.sees(read, (*read.values, *again))
    return True


def tear(broken: Broken) -> bool:
    longer = {call.values: call for call in broken.calls if call.f == "append" and len(call.values) > 1}
    found = [(read, values) for read in broken.reads() for values in longer if values[0] in read.values]
    if not found:
        return False
    read, values = broken.chance.choice(found)
    broken.sees(read, without(read.values, (broken.chance.choice(values),)))
    return True


def invent(broken: Broken) -> bool:
    read = broken.choose(broken.reads())
    if read is None:
        return False
    place = broken.chance.randrange(len(read.values) + 1)
    broken.sees(read, (*read.values[:place], "nobody wrote this", *read.values[place:]))
    return True


def swap(broken: Broken) -> bool:
    """Two turns of which one ended before the other began change places."""
    appends = [call for call in broken.acknowledged() if len(call.values) == 1]
    found = [
        (read, one, other)
        for read in broken.reads()
        for one in appends
        for other in appends
        if one.end < other.begin and one.values[0] in read.values and other.values[0] in read.values
    ]
    if not found:
        return False
    read, one, other = broken.chance.choice(found)
    exchange = {one.values[0]: other.values[0], other.values[0]: one.values[0]}
    broken.sees(read, tuple(exchange.get(value, value) for value in read.values))
    return True


def go_back(broken: Broken) -> bool:
    """A read lacks what was acknowledged before it began, and a later read has."""
    found = [
        (read, call)
        for call in broken.acknowledged()
        for read in broken.reads(after=call.end)
        if any(later.end > read.end and call.values[0] in later.values for later in broken.reads())
    ]
    if not found:
        return False
    read, call = broken.chance.choice(found)
    broken.sees(read, without(read.values, call.values))
    return True


def bring_back(broken: Broken) -> bool:
    """A unit acknowledged before a clear began is read after it ended."""
    found = [
        (read, call)
        for clear in broken.calls
        if clear.f == "clear" and clear.end != NEVER
        for call in broken.acknowledged()
        if call.end < clear.begin
        for read in broken.reads(after=clear.end)
        if call.values[0] not in read.values
    ]
    if not found:
        return False
    read, call = broken.chance.choice(found)
    broken.sees(read, (*call.values, *read.values))
    return True


def show_what_failed(broken: Broken) -> bool:
    failed = [call for call in broken.calls if call.f == "append" and call.outcome == "fail" and not call.invoke.key]
    found = [(read, call) for call in failed for read in broken.reads(after=call.end)]
    if not found:
        return False
    read, call = broken.chance.choice(found)
    broken.sees(read, (*read.values, *call.values))
    return True


@pytest.mark.parametrize(
    ("damage", "kind", "plan"),
    [
        (lose, "lost", Plan(workers=4)),
        (lose, "lost", Plan(workers=6, **FAULTS)),
        (double, "duplicate", Plan(workers=4, weights=PLAIN | DESTRUCTIVE)),
        (tear, "torn", Plan(workers=4, weights=PLAIN | {"clear": 1, "snapshot": 1, "rollback": 1})),
        (invent, "phantom", Plan(workers=4, weights=PLAIN | DESTRUCTIVE, **FAULTS)),
        (show_what_failed, "phantom", Plan(workers=4, weights=PLAIN | DESTRUCTIVE, refuses=0.3)),
        (swap, "misordered", Plan(workers=4, weights=PLAIN | DESTRUCTIVE, sizes=(1,))),
        (go_back, "stale", Plan(workers=4)),
        (bring_back, "resurrected", Plan(workers=4, weights=PLAIN | {"clear": 1})),
    ],
    ids=lambda value: value.__name__ if callable(value) else value if isinstance(value, str) else "",
)
@settings(played, max_examples=EXAMPLES // 3)
@given(seed=seeds)
def test_one_broken_thing_is_found_and_called_by_its_name(
    damage: Callable[[Broken], bool], kind: ViolationKind, plan: Plan, seed: int
) -> None:
    broken = Broken(simulate(plan, seed), Random(seed))
    if not damage(broken):
        return
    verdict = judge(broken.events)
    assert kind in verdict.counts, verdict.counts
    for violation in verdict.violations:
        # Judged alone, the few events of a story show the same.
        assert violation.kind in judge(violation.events).counts
