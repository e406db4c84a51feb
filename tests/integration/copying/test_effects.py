"""Copies bring effects along, between any two backends, and leave leases behind."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn import LeaseLost
from tests.integration.copying.talks import HOSTILE, say
from tests.store.places import Clock, Place

KEY = HOSTILE.replace("\0", "")


def test_effects_come_along_and_leases_stay_behind(source: Place, target: Place) -> None:
    one, other = source.open(), target.open()
    say(one, "a", "1")
    with one.lease("a") as lease:
        one.once("a", KEY, lambda: {"text": HOSTILE, "numbers": [1, 2.5, None]}, request={HOSTILE: 1}, lease=lease)
        one.begin_effect("a", "in doubt", lease=lease)
        one.begin_effect("a", "nothing")
        one.finish_effect("a", "nothing")
        assert everturn.copy(one, other).ok
        assert _told(other) == _told(one)
        other.lease("a").release()
    one.fail_effect("a", "in doubt", HOSTILE, note=KEY)
    one.begin_effect("a", "later")
    assert everturn.copy(one, other).ok
    assert _told(other) == _told(one)
    assert other.begin_effect("a", KEY).status == "finished"
    assert other.verify().ok


def test_a_copy_takes_over_the_lease_of_its_name_and_ends_it_with_its_life(target: Place, beside: Any) -> None:
    say(beside, "a", "1")
    other, clock = target.open(), Clock(4e9)  # later than the times that come along
    target.set_clock(other, clock)
    lease = other.lease("a", seconds=1000)
    assert everturn.copy(beside, other).ok
    say(other, "a", "2", lease=lease)
    other.set_ttl("a", 10)
    clock.advance(11)
    say(other, "a", "3")
    with pytest.raises(LeaseLost):
        say(other, "a", "4", lease=lease)
    assert other.get_lease("a") is None


def _told(store: Any) -> list[Any]:
    """Everything of the effects but their times, of which servers keep microseconds."""
    effects = store.get_effects("a")
    assert all(effect.at for effect in effects)
    return [
        (one.key, one.status, one.request, one.result, one.error, one.attempt, one.by, one.lease, one.version, one.note)
        for one in effects
    ]
