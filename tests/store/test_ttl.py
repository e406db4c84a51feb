"""Time to live: a session expires as a whole, at once, and for good."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from everturn import InvalidInput, SessionNotFound, SnapshotNotFound, Summary, ToolCall, VersionConflict
from tests.store.places import Clock, Place
from tests.store.speech import say, say_each, user, words


@pytest.fixture
def brief(place: Place) -> tuple[Any, Clock]:
    """A store whose sessions live for ten seconds, and the clock it goes by."""
    store = place.open(ttl=10)
    clock = Clock()
    place.set_clock(store, clock)
    return store, clock


def test_an_expired_session_reads_as_empty_at_once(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    store.append("a", [user("1"), ToolCall("f", {}), Summary("s", [1.0], (1, 1))])
    store.save_snapshot("a")
    clock.advance(10)
    assert store.get_history("a") == []
    assert store.get_tool_calls("a") == []
    assert store.get_summaries("a") == []
    assert store.search_summaries("a", [1.0]) == []
    assert store.list_snapshots("a") == []
    assert store.changes("a") == []
    assert store.find("1", session_id="a") == []
    assert store.sessions().sessions == ()
    assert store.state("a").version == 0
    with pytest.raises(SessionNotFound):
        store.info("a")


@pytest.mark.where(finds_everywhere=True, orders_by_change=True)
def test_an_expired_session_is_in_nothing_that_goes_over_all_sessions(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    clock.advance(10)
    assert store.find("1") == []
    assert store.sessions(order="recent").sessions == ()


def test_until_then_it_is_all_there(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    clock.advance(9.99)
    assert words(store, "a") == ["1"]
    assert store.info("a").expires_at == pytest.approx(clock.now + 0.01)


@pytest.mark.parametrize("change", ["undo", "rollback", "delete_snapshot", "set_ttl", "fork"])
def test_changes_that_need_a_session_find_none(brief: tuple[Any, Clock], change: str) -> None:
    store, clock = brief
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    store.clear("a")
    clock.advance(10)
    call = {
        "undo": lambda: store.undo("a"),
        "rollback": lambda: store.rollback_to_snapshot("a", snapshot),
        "delete_snapshot": lambda: store.delete_snapshot("a", snapshot),
        "set_ttl": lambda: store.set_ttl("a", 99),
        "fork": lambda: store.fork("a", "b"),
    }[change]
    with pytest.raises(SessionNotFound):
        call()


def test_a_write_after_expiry_begins_a_new_life(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    first = say(store, "a", "1")
    clock.advance(10)
    second = say(store, "a", "2")
    assert second.life != first.life
    assert (second.version, second.seqs) == (1, (1,))
    assert words(store, "a") == ["2"]


def test_a_snapshot_of_the_expired_life_is_refused(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    clock.advance(10)
    say(store, "a", "2")
    with pytest.raises(SnapshotNotFound):
        store.rollback_to_snapshot("a", snapshot)
    with pytest.raises(SnapshotNotFound):
        store.get_history("a", at=snapshot)


def test_a_key_of_the_expired_life_is_unknown(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1", key="k")
    clock.advance(10)
    assert not say(store, "a", "other", key="k").replayed


def test_a_receipt_of_the_expired_life_conflicts(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    receipt = say(store, "a", "1")
    clock.advance(10)
    with pytest.raises(VersionConflict):
        say(store, "a", "2", expected_version=receipt)
    say(store, "a", "2", expected_version=0)
    with pytest.raises(VersionConflict):
        say(store, "a", "3", expected_version=receipt)


def test_every_change_refreshes_it(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    for change in (
        lambda: say(store, "a", "4"),
        lambda: store.trim("a", max_messages=2),
        lambda: store.rollback_to_snapshot("a", snapshot),
        lambda: store.undo("a"),
        lambda: store.clear("a"),
        lambda: store.save_snapshot("a"),
        lambda: store.delete_snapshot("a", snapshot),
        lambda: store.replace("a", [user("x")]),
    ):
        clock.advance(9)
        change()
        assert store.info("a").expires_at == clock.now + 10


def test_reads_do_not_refresh_it(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    expires_at = store.info("a").expires_at
    clock.advance(9)
    for read in (store.get_history, store.state, store.info, store.changes, store.list_snapshots, store.verify):
        read("a")
    store.sessions()
    store.find("1", session_id="a")
    assert store.info("a").expires_at == expires_at


def test_a_change_that_changes_nothing_does_not_refresh_it(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1", key="k")
    expires_at = store.info("a").expires_at
    clock.advance(9)
    say(store, "a", "1", key="k")
    store.trim("a", max_messages=9)
    assert store.info("a").expires_at == expires_at


def test_a_session_without_ttl_never_expires(store: Any, clock: Clock) -> None:
    say(store, "a", "1")
    clock.advance(10**9)
    assert words(store, "a") == ["1"]
    assert (store.info("a").ttl, store.info("a").expires_at) == (None, None)


def test_set_ttl_gives_a_session_a_time_of_its_own(store: Any, clock: Clock) -> None:
    say_each(store, "a", "1")
    say_each(store, "b", "2")
    assert store.set_ttl("a", 5).version == 2
    clock.advance(5)
    assert (words(store, "a"), words(store, "b")) == ([], ["2"])


def test_times_are_floats_whatever_they_were_given_as(brief: tuple[Any, Clock]) -> None:
    store, _ = brief
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    info, (change, _) = store.info("a"), store.changes("a")
    times = [info.created_at, info.changed_at, info.ttl, info.expires_at, store.state("a").ttl]
    times += [snapshot.created_at, store.list_snapshots("a")[0].created_at, change.created_at]
    assert {type(time) for time in times} == {float}


def test_set_ttl_none_lets_it_live(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    store.set_ttl("a", None)
    clock.advance(10**9)
    assert words(store, "a") == ["1"]


def test_a_ttl_that_was_set_outlasts_later_changes(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    store.set_ttl("a", 100)
    say(store, "a", "2")
    assert (store.info("a").ttl, store.info("a").expires_at) == (100, clock.now + 100)


def test_the_ttl_belongs_to_the_session_and_not_to_the_store(lasting: Place) -> None:
    clock = Clock()
    brief, endless = lasting.open(ttl=10), lasting.open()
    for store in (brief, endless):
        lasting.set_clock(store, clock)
    say(brief, "a", "1")
    say(endless, "a", "2")
    say(endless, "b", "1")
    say(brief, "b", "2")
    clock.advance(10)
    assert (words(endless, "a"), words(brief, "b")) == ([], ["1", "2"])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "10", True])
def test_what_is_no_time_is_refused(one_store: Any, seconds: object) -> None:
    say(one_store, "a", "1")
    with pytest.raises(InvalidInput, match="seconds"):
        one_store.set_ttl("a", seconds)


def test_set_ttl_on_an_absent_session_is_refused(store: Any) -> None:
    with pytest.raises(SessionNotFound):
        store.set_ttl("nobody", 10)


def test_expiry_touches_no_other_session(brief: tuple[Any, Clock]) -> None:
    store, clock = brief
    say(store, "a", "1")
    clock.advance(5)
    say(store, "b", "2")
    clock.advance(6)
    assert (words(store, "a"), words(store, "b")) == ([], ["2"])


def test_compact_removes_what_expired(lasting: Place) -> None:
    store, clock = lasting.open(ttl=10), Clock()
    lasting.set_clock(store, clock)
    say(store, "a", *map(str, range(2500)))
    clock.advance(10)
    say(store, "a", "new life")
    say(store, "b", "1")
    assert store.compact().entries == (2500 if lasting.keeps_the_expired else 0)
    assert lasting.editor.entries() == 2
    assert (words(store, "a"), words(store, "b")) == (["new life"], ["1"])
    assert store.verify().ok


# --- reaping ---------------------------------------------------------------------------------------------------------


@pytest.mark.where(keeps_the_expired=True, writers_reap=True)
def test_writers_reap_what_expired_in_bounded_steps(lasting: Place) -> None:
    store, clock = lasting.open(ttl=10), Clock()
    lasting.set_clock(store, clock)
    say(store, "gone", *(f"{number:1600}" for number in range(2500)))  # so long that each has a row of its own
    store.set_ttl("gone", 1)
    clock.advance(2)
    left = [2500]
    for written in range(64, 64 * 100, 64):  # as many steps as a busy machine needs
        for _ in range(64):
            say(store, "busy", "x")
        left.append(lasting.editor.entries() - written)
        if left[-1] == 0:
            break
    assert left[-1] == 0
    assert all(0 < before - after <= 1000 for before, after in pairwise(left))
    assert len(words(store, "busy")) == written
    assert store.verify().ok


@pytest.mark.where(keeps_the_expired=True, writers_reap=True)
def test_a_session_reaped_in_part_does_not_come_back_on_a_clock_set_back(lasting: Place) -> None:
    store, clock = lasting.open(), Clock()
    lasting.set_clock(store, clock)
    say(store, "gone", *(f"{number:1600}" for number in range(2500)))
    store.set_ttl("gone", 10)
    clock.advance(11)
    for _ in range(64):
        say(store, "busy", "x")
    assert 64 < lasting.editor.entries() < 2564
    clock.advance(-5)
    assert store.get_history("gone") == []
    assert say(store, "gone", "new").version == 1
