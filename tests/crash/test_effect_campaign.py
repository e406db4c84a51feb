"""Eight workers that are stopped and killed do each effect once, and each that was not done is in doubt.

Two hundred effects here; `make campaign` does thousands, and is part of `make deep`.
"""

from __future__ import annotations

import pytest

from tests.crash.effect_campaign import fence_breaks, run
from tests.crash.effect_places import PLACES
from tests.tiers import first

SOME = 200


@pytest.mark.parametrize("place", first(2, PLACES))
def test_each_effect_is_done_once_or_in_doubt_and_no_old_lease_changes_anything(place: str) -> None:
    verdict = run(place, SOME, 1)
    assert verdict.problems == []
    assert verdict.figures["finished"] > SOME * 0.8
    assert verdict.figures["kills"] > 0
    assert verdict.figures["stops"] > 0
    assert verdict.figures["lease lost"] > 0


@pytest.mark.parametrize(
    ("history", "breaks"),
    [(["1 a", "1 a", "2 b", "4 c"], 0), (["1 a", "2 b", "1 a"], 1), (["1 a", "2 b", "2 c"], 1), ([], 0)],
)
def test_a_token_that_comes_behind_a_later_one_or_has_two_holders_is_found(history: list[str], breaks: int) -> None:
    assert len(fence_breaks("a", history)) == breaks
