"""Leases: one holder at a time, and a fence that holds against whoever lost it."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

import everturn
from everturn import InvalidInput, LeaseHeld, LeaseLost, VersionConflict
from tests.store.places import Clock, Place
from tests.store.speech import say, words


def test_a_lease_lets_its_holder_change_the_session(store: Any) -> None:
    with store.lease("a") as lease:
        assert say(store, "a", "1", lease=lease).version == 1
        assert say(store, "a", "2", lease=lease.token).version == 2
    assert words(store, "a") == ["1", "2"]


def test_only_one_holds_a_lease(store: Any) -> None:
    with store.lease("a") as lease, pytest.raises(LeaseHeld) as caught:
        store.lease("a")
    assert (caught.value.session_id, caught.value.token) == ("a", lease.token)
    assert 0 < caught.value.left < 30.001  # times are floats: a difference of two is rounded
    store.lease("b").release()


def test_a_released_lease_can_be_taken_at_once_with_a_greater_token(store: Any) -> None:
    tokens = []
    for _ in range(3):
        with store.lease("a") as lease:
            tokens.append(lease.token)
            say(store, "a", "x", lease=lease)
    assert tokens == sorted(set(tokens))


def test_a_holder_that_died_frees_its_lease_by_time(store: Any, clock: Clock) -> None:
    first = store.lease("a", seconds=10)
    clock.advance(9)
    with pytest.raises(LeaseHeld):
        store.lease("a")
    clock.advance(2)
    assert store.lease("a").token > first.token


def test_whoever_lost_the_lease_changes_nothing_also_if_nothing_else_moved(store: Any, clock: Clock) -> None:
    say(store, "a", "1")
    sleeper = store.lease("a", seconds=10)
    clock.advance(11)
    other = store.lease("a", seconds=10)
    before = store.state("a")
    with pytest.raises(LeaseLost) as caught:
        say(store, "a", "late", lease=sleeper)
    assert (caught.value.session_id, caught.value.token) == ("a", sleeper.token)
    assert store.state("a") == before
    say(store, "a", "2", lease=other)


def test_a_lease_whose_time_is_over_is_refused_also_if_nobody_took_it(store: Any, clock: Clock) -> None:
    say(store, "a", "1")
    lease = store.lease("a", seconds=10)
    clock.advance(11)
    for change in (lambda: say(store, "a", "late", lease=lease), lease.renew):
        with pytest.raises(LeaseLost):
            change()
    assert words(store, "a") == ["1"]


def test_every_change_looks_at_the_lease_it_names(store: Any) -> None:
    say(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    say(store, "a", "4")
    lost = store.lease("a")
    lost.release()
    before = store.state("a")
    changes = [
        lambda: store.append("a", [everturn.Record("x", 1)], lease=lost.token),
        lambda: store.replace("a", [], after=1, lease=lost.token),
        lambda: store.save_context("a", "x", "y", lease=lost.token),
        lambda: store.add_tool_call("a", everturn.ToolCall("f", {}), lease=lost.token),
        lambda: store.add_summary("a", everturn.Summary("x", [1.0], (1, 1)), lease=lost.token),
        lambda: store.save_snapshot("a", lease=lost.token),
        lambda: store.delete_snapshot("a", snapshot, lease=lost.token),
        lambda: store.rollback_to_snapshot("a", snapshot, lease=lost.token),
        lambda: store.rollback("a", 1, lease=lost.token),
        lambda: store.undo("a", lease=lost.token),
        lambda: store.trim("a", max_messages=1, lease=lost.token),
        lambda: store.fold("a", lambda *_: "short", max_messages=1, lease=lost.token),
        lambda: store.clear("a", lease=lost.token),
        lambda: store.set_ttl("a", 100, lease=lost.token),
        lambda: store.begin_effect("a", "k", lease=lost.token),
        lambda: store.finish_effect("a", "k", lease=lost.token),
        lambda: store.fail_effect("a", "k", "no", lease=lost.token),
    ]
    for change in changes:
        with pytest.raises(LeaseLost):
            change()
    assert store.state("a") == before


def test_a_lease_hinders_neither_reads_nor_changes_that_name_none(store: Any) -> None:
    with store.lease("a"):
        assert words(store, "a") == []
        say(store, "a", "1")
        assert words(store, "a") == ["1"]


def test_taking_renewing_and_releasing_are_no_changes(store: Any) -> None:
    say(store, "a", "1")
    before = store.state("a")
    lease = store.lease("a", seconds=20)
    lease.renew()
    lease.release()
    assert store.state("a") == before
    assert [change.version for change in store.changes("a")] == [1]


def test_leasing_an_absent_session_leaves_it_absent(store: Any) -> None:
    with store.lease("a"):
        assert store.sessions().sessions == ()
        with pytest.raises(everturn.SessionNotFound):
            store.info("a")
        assert say(store, "a", "1", expected_version=0).version == 1
    assert store.verify().ok


def test_the_token_goes_on_in_the_life_that_begins_under_a_lease(store: Any) -> None:
    with store.lease("a") as first:
        say(store, "a", "1", lease=first)
    with store.lease("a") as second:
        assert second.token > first.token


def test_renewing_keeps_the_token_and_moves_the_end(store: Any, clock: Clock) -> None:
    lease = store.lease("a", seconds=10)
    token, until = lease.token, lease.until
    clock.advance(8)
    lease.renew()
    assert (lease.token, lease.until) == (token, until + 8)
    clock.advance(8)
    say(store, "a", "1", lease=lease)
    lease.renew(seconds=100)
    clock.advance(90)
    say(store, "a", "2", lease=lease)


def test_a_lease_is_released_once(store: Any) -> None:
    lease = store.lease("a")
    lease.release()
    for again in (lease.release, lease.renew, lambda: say(store, "a", "x", lease=lease)):
        with pytest.raises(LeaseLost):
            again()


def test_nobody_releases_the_lease_of_another(store: Any, clock: Clock) -> None:
    first = store.lease("a", seconds=10)
    clock.advance(11)
    second = store.lease("a", seconds=10)
    for stranger in (first.release, first.renew):
        with pytest.raises(LeaseLost):
            stranger()
    say(store, "a", "1", lease=second)


def test_a_lease_of_another_session_is_refused(store: Any) -> None:
    with store.lease("a") as lease, pytest.raises(InvalidInput, match="lease: is a lease of session 'a', not of 'b'"):
        say(store, "b", "1", lease=lease)
    assert words(store, "b") == []


def test_a_lease_of_an_earlier_life_is_refused(store: Any) -> None:
    say(store, "a", "1")
    lease = store.lease("a")
    store.erase("a")
    say(store, "a", "2")
    with pytest.raises(LeaseLost):
        say(store, "a", "3", lease=lease)
    with store.lease("a") as another:
        say(store, "a", "4", lease=another)
    assert words(store, "a") == ["2", "4"]


def test_expiry_ends_the_lease_with_the_life(store: Any, clock: Clock) -> None:
    say(store, "a", "1")
    store.set_ttl("a", 10)
    lease = store.lease("a", seconds=1000)
    clock.advance(11)
    with pytest.raises(LeaseLost):
        say(store, "a", "2", lease=lease)
    say(store, "a", "3")
    with pytest.raises(LeaseLost):
        say(store, "a", "4", lease=lease)
    with store.lease("a") as another:
        say(store, "a", "5", lease=another)
    assert words(store, "a") == ["3", "5"]


def test_a_fork_takes_over_the_lease_of_its_name_and_ends_it_with_its_life(store: Any, clock: Clock) -> None:
    say(store, "origin", "1")
    lease = store.lease("a", seconds=1000)
    store.fork("origin", "a")
    say(store, "a", "2", lease=lease)
    store.set_ttl("a", 10)
    clock.advance(11)
    say(store, "a", "3")
    with pytest.raises(LeaseLost):
        say(store, "a", "4", lease=lease)
    assert (words(store, "a"), store.get_lease("a")) == (["3"], None)


def test_anybody_can_see_who_holds_a_lease(store: Any, clock: Clock) -> None:
    assert store.get_lease("a") is None
    before = time.time()
    lease = store.lease("a", seconds=10)
    clock.advance(4)
    held = store.get_lease("a")
    assert (held.session_id, held.token, held.until) == ("a", lease.token, lease.until)
    assert held.left == pytest.approx(6)
    assert before - 1 <= held.since <= time.time() + 1
    say(store, "a", "1")  # the life that begins takes it over
    assert store.get_lease("a").by == held.by
    assert store.begin_effect("a", "pay").by == held.by
    lease.release()
    assert store.get_lease("a") is None


def test_a_lease_that_is_over_is_held_by_nobody(store: Any, clock: Clock) -> None:
    store.lease("absent", seconds=10)
    say(store, "expired", "1")
    store.set_ttl("expired", 5)
    store.lease("expired", seconds=1000)
    say(store, "erased", "1")
    store.lease("erased", seconds=1000)
    assert None not in [store.get_lease(name) for name in ("absent", "expired", "erased")]
    clock.advance(11)
    store.erase("erased")
    assert [store.get_lease(name) for name in ("absent", "expired", "erased")] == [None] * 3


def test_looking_at_a_lease_is_no_change(store: Any) -> None:
    store.get_lease("a")
    assert store.sessions().sessions == ()
    with store.lease("a"):
        assert store.get_lease("a") is not None
        assert store.sessions().sessions == ()


def test_the_version_is_compared_before_the_lease(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(VersionConflict):
        say(store, "a", "2", expected_version=7, lease=99)


def test_a_key_is_looked_up_before_the_lease(store: Any) -> None:
    with store.lease("a") as lease:
        first = say(store, "a", "1", key="k", lease=lease)
    again = say(store, "a", "1", key="k", lease=lease.token)
    assert again.replayed
    assert again.version == first.version


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 10**9, float("nan"), float("inf"), "30", None, True])
def test_a_lease_lasts_up_to_a_day(one_store: Any, seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="seconds"):
        one_store.lease("a", seconds=seconds)
    one_store.lease("a")


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan"), "1", None])
def test_waiting_takes_a_number_of_seconds(one_store: Any, wait: Any) -> None:
    with pytest.raises(InvalidInput, match="wait"):
        one_store.lease("a", wait=wait)


@pytest.mark.parametrize("lease", [0, -1, "1", 1.0, True, object()])
def test_a_change_names_a_lease_or_its_token(one_store: Any, lease: Any) -> None:
    with pytest.raises(InvalidInput, match="lease"):
        say(one_store, "a", "1", lease=lease)


def test_whoever_waits_gets_the_lease_when_it_is_released(store: Any) -> None:
    first = store.lease("a", seconds=60)
    got: list[int] = []

    def wait() -> None:
        got.append(store.lease("a", wait=30).token)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)  # so that it waits; the outcome is the same if it does not yet
    first.release()
    waiting.join(30)
    assert got
    assert got[0] > first.token


def test_waiting_ends_with_the_patience_of_the_caller(store: Any) -> None:
    with store.lease("a", seconds=60), pytest.raises(LeaseHeld):
        store.lease("a", wait=0.05)


def test_a_lease_is_renewed_in_the_background_until_its_block_ends(store: Any, clock: Clock) -> None:
    """By the clock of the backend, which waits for the renewal: a machine may be too busy for one every 0.2 seconds."""
    deadline = time.monotonic() + 30
    with store.lease("a", seconds=0.6, renew=True) as lease:
        for _ in range(3):
            until = lease.until
            clock.advance(0.4)
            while lease.until == until and time.monotonic() < deadline:
                time.sleep(0.01)
        say(store, "a", "1", lease=lease)
        while lease.is_lost and time.monotonic() < deadline:  # by the clock of this process: until the next renewal
            time.sleep(0.01)
        assert not lease.is_lost
    assert not [thread for thread in threading.enumerate() if thread.name == "everturn-lease"]
    store.lease("a").release()


@pytest.mark.where(shared=True)
def test_another_process_is_fenced_off(lasting: Place) -> None:
    one, other = lasting.open(), lasting.open()
    clock = Clock()
    lasting.set_clock(one, clock)
    lasting.set_clock(other, clock)
    sleeper = one.lease("a", seconds=5)
    with pytest.raises(LeaseHeld):
        other.lease("a")
    clock.advance(6)
    other.lease("a")
    with pytest.raises(LeaseLost):
        say(one, "a", "late", lease=sleeper)


def test_a_forked_child_holds_nothing(file: Place) -> None:
    store = file.open()
    with store.lease("a") as lease:
        child = os.fork()
        if not child:
            status = 1
            try:
                say(store, "a", "child", lease=lease)
            except LeaseLost:
                lease.__exit__(None, None, None)  # it must not release the parent's
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        say(store, "a", "parent", lease=lease)
    assert words(store, "a") == ["parent"]


def test_a_clock_that_was_set_back_by_days_does_not_hold_a_lease_for_days(store: Any, clock: Clock) -> None:
    """By less than a day it does: until the clock is where it was."""
    say(store, "a", "1")
    store.lease("a", seconds=60)
    clock.now -= 3 * 86_400
    if store.info("a").changed_at > clock.now:  # a backend whose clock never goes back counts on from where it was
        clock.advance(3 * 86_400 + 61)
    store.lease("a").release()
