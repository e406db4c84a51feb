"""Six workers that are stopped and killed lose no turn that was acknowledged, and double and tear none.

A hundred turns here; `make campaign` writes thousands, and is part of `make deep`.
"""

from __future__ import annotations

import pytest

from tests.crash.effect_places import PLACES
from tests.crash.turn_campaign import findings, outcomes_of, run
from tests.crash.turn_worker import turn
from tests.tiers import deep

SOME = 100


@pytest.mark.parametrize("place", [place if place == "dynamodb" else deep(place) for place in PLACES])
def test_every_turn_is_there_once_and_whole_as_its_writer_was_told(place: str) -> None:
    verdict = run(place, SOME, 1)
    assert verdict.problems == []
    assert verdict.figures["kept"] >= SOME
    assert verdict.figures["kills"] > 0
    assert verdict.figures["stops"] > 0


def history(*keys: str) -> list[str]:
    return [str(message.content) for key in keys for message in turn(key)]


TOLD = outcomes_of("""
begun s0 a.1.0
kept s0 a.1.0
begun s0 a.2.5
kept s0 a.2.5
begun s0 b.1.0
not_written s0 b.1.0
begun s1 b.2.0
kept s1 b.2.0
begun s0 b.3.0
unknown s0 b.3.0
begun s0 a.3.0
""")
SOUND = history("a.1.0", "a.2.5")


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        (SOUND, []),
        ([*SOUND, *history("b.3.0", "a.3.0")], []),
        (history("a.1.0"), ["s0: a.2.5 is lost"]),
        ([*SOUND, *history("b.1.0")], ["s0: b.1.0 was not written, and is there"]),
        (history("a.1.0", "a.2.5", "b.3.0", "b.3.0"), ["there 2 times", "b.3.0 is behind number 3 of its worker"]),
        (history("a.2.5", "a.1.0"), ["s0: a.1.0 is behind number 2 of its worker"]),
        ([*SOUND, *history("c.1.0")], ["s0: nobody wrote c.1.0"]),
        ([*SOUND[:3], SOUND[3][:-1]], ["s0: a.2.5 is torn"]),
        (SOUND[:3], ["a message too few or too many"]),
    ],
)
def test_a_history_that_is_not_as_its_writers_were_told_is_found(messages: list[str], found: list[str]) -> None:
    told = findings("s0", messages, TOLD)
    assert len(told) == len(found)
    for part in found:
        assert any(part in problem for problem in told)
