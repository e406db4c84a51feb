"""The judge and an oracle that tries every order agree, in both directions, on thousands of tiny histories.

EVERTURN_DEEP=1 compares a hundred times as many.
"""

from __future__ import annotations

import os
from random import Random

import msgspec
import pytest

from everturn.testing.history import judge
from everturn.testing.history.fast_accept import certainly_in_order
from everturn.testing.history.parse import pair, sessions
from everturn.testing.results import Event
from tests.kit.history_tools import SESSION, Plan, explainable, simulate

SEEDS = range(60_000 if os.environ.get("EVERTURN_DEEP") else 400)

WEIGHTS = {
    "appends": {"append": 3, "read": 3},
    "clears": {"append": 4, "read": 4, "clear": 1},
    "trims": {"append": 4, "read": 4, "trim": 2},
    "rollbacks": {"append": 4, "read": 3, "snapshot": 2, "rollback": 2},
    "replaces": {"append": 3, "read": 4, "replace": 1, "clear": 1},
    "erasures": {"append": 3, "read": 3, "erase": 1, "snapshot": 1, "rollback": 1},
    "everything": {
        "append": 4,
        "read": 4,
        "clear": 1,
        "trim": 1,
        "snapshot": 1,
        "rollback": 1,
        "replace": 1,
        "erase": 1,
    },
}


def spoilt(events: list[Event], chance: Random) -> list[Event]:
    """Change what one read saw; often, but not always, that makes a violation."""
    reads = [place for place, event in enumerate(events) if event.type == "ok" and event.values is not None]
    if not reads:
        return events
    place = chance.choice(reads)
    values = list(events[place].values or ())
    written = [value for event in events if event.type == "invoke" for value in event.values or ()]
    match chance.randrange(5):
        case 0 if values:
            values.pop(chance.randrange(len(values)))
        case 1 if values:
            values.insert(chance.randrange(len(values) + 1), chance.choice(values))
        case 2 if written:
            values.insert(chance.randrange(len(values) + 1), chance.choice(written))
        case 3 if len(values) > 1:
            one, other = chance.sample(range(len(values)), 2)
            values[one], values[other] = values[other], values[one]
        case _:
            values = values[: chance.randrange(len(values) + 1)]
    events = list(events)
    events[place] = msgspec.structs.replace(events[place], values=tuple(values))
    return events


def tiny(name: str, seed: int) -> tuple[list[Event], bool]:
    """A history of a few calls, spoilt now and then; whether its units are single messages."""
    chance = Random(f"{name} {seed}")
    sizes = chance.choice([(1,), (1, 2)])
    plan = Plan(
        workers=chance.choice([2, 3, 4]),
        calls=chance.randint(3, 8),
        weights=WEIGHTS[name],
        sizes=sizes,
        limits=(1, 2, 3),
        raises=chance.choice([0, 0.2]),
        kills=chance.choice([0, 0.1]),
        refuses=chance.choice([0, 0.1]),
        keyed=chance.choice([0, 0.5]),
        late=0.5,
    )
    events = simulate(plan, seed)
    for _ in range(chance.randrange(3)):
        events = spoilt(events, chance)
    return events, sizes == (1,)


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_judge_finds_a_violation_where_no_order_explains_a_history_and_only_there(name: str) -> None:
    wrong = 0
    for seed in SEEDS:
        events, single = tiny(name, seed)
        calls = pair(events)
        possible = explainable(sessions(calls)[SESSION], calls)
        verdict = judge(events)
        assert verdict.undecided == ()
        if possible:
            assert verdict.counts == {}, f"a false alarm: {name}, {seed}"
        elif single or "trim" not in WEIGHTS[name]:  # where a trim cut a turn, how much it left is not judged
            assert verdict.counts, f"missed: {name}, {seed}"
        wrong += not possible
    assert len(SEEDS) / 10 < wrong < len(SEEDS) / 1.5  # both directions were put to the test


def test_the_quick_look_says_yes_exactly_when_there_is_an_order() -> None:
    said = []
    for seed in SEEDS:
        calls = pair(tiny("appends", seed)[0])
        session = sessions(calls)[SESSION]
        said.append(certainly_in_order(session))
        assert said[-1] == explainable(session, calls), seed
    assert 0 < sum(said) < len(said)
