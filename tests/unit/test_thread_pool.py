"""Things that threads lend each other: no more than there may be, none lost, and nobody waits for ever."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from everturn.backends._shared.thread_pool import BoundedPool, PoolPlace
from everturn.testing.servers import wait_until


class Exhausted(Exception):
    pass


class Closed(Exception):
    pass


def pool_of(size: int) -> BoundedPool[int]:
    return BoundedPool(size, Exhausted, Closed)


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def waits(things: BoundedPool[int]) -> None:
    """Return once a thread waits for one of them."""
    wait_until(lambda: things._waiting > 0, "a thread waits")


def lend(things: BoundedPool[int], item: int | None = None) -> PoolPlace[int]:
    """Take a place, with an item made for it."""
    place = things.take(soon())
    if item is not None:
        place.item = item
    return place


def test_what_came_back_last_is_lent_first() -> None:
    things = pool_of(2)
    one, two = lend(things), lend(things)
    assert (one.item, two.item) == (None, None)
    one.item, two.item = 1, 2
    things.give_back(one)
    things.give_back(two)
    assert (lend(things), lend(things)) == (two, one)


def test_it_knows_how_many_are_lent() -> None:
    things = pool_of(3)
    assert things.lent == 0
    one, two = lend(things, 1), lend(things, 2)
    assert things.lent == 2
    things.give_back(one)
    assert things.lent == 1
    things.forget(two)
    assert things.lent == 0


def test_no_more_are_made_than_there_may_be() -> None:
    things = pool_of(1)
    place = lend(things)
    with pytest.raises(Exhausted):
        things.take(soon(0))
    things.forget(place)
    assert things.take(soon(0)).item is None


def test_a_place_that_nobody_has_any_more_is_free_again() -> None:
    things = pool_of(1)
    place = lend(things)
    assert things.lent == 1
    del place
    assert things.lent == 0
    assert things.take(soon(0)).item is None


def test_what_comes_back_too_late_is_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was not let run for a while, on a busy machine, hears that all were busy, and not that its time is up."""
    things = pool_of(1)
    place = lend(things, 7)
    told: list[str] = []

    def wait(_seconds: float) -> bool:
        things._idle.append(place)
        return True

    monkeypatch.setattr(things._changed, "wait", wait)
    monkeypatch.setattr(things._changed, "notify", lambda: told.append("the next"))
    with pytest.raises(Exhausted):
        things.take(soon(0))
    assert told == ["the next"]
    assert things.take(soon(0)) is place


def test_whoever_waits_gets_what_is_given_back() -> None:
    things = pool_of(1)
    place = lend(things, 7)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(things.take, soon())
        waits(things)
        things.give_back(place)
        assert waiting.result() is place


def test_whoever_waits_may_make_what_another_lost() -> None:
    things = pool_of(1)
    place = lend(things, 7)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(things.take, soon())
        waits(things)
        things.forget(place)
        assert waiting.result().item is None


def test_whoever_waits_hears_that_it_was_closed() -> None:
    things = pool_of(1)
    place = lend(things, 7)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(things.take, soon())
        waits(things)
        assert things.close() == []
        with pytest.raises(Closed):
            waiting.result()
    things.give_back(place)
    with pytest.raises(Closed):
        things.take(soon())
    assert things.clear() == [7]


def test_threads_never_have_the_same_thing_nor_too_many() -> None:
    things, made, busy = pool_of(3), itertools.count(), set[int]()
    at_once: list[int] = []

    def borrow(_: int) -> None:
        for _ in range(300):
            place = things.take(soon())
            if place.item is None:
                place.item = next(made)
            thing = place.item
            assert thing not in busy
            busy.add(thing)
            at_once.append(len(busy))
            busy.discard(thing)
            things.give_back(place)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(borrow, range(12)))
    assert max(at_once) <= 3
    assert sorted(things.clear()) == list(range(next(made)))
