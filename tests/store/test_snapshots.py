"""Snapshots, and the rollbacks that they outlive. test_rollback.py has what a rollback takes along."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, SessionNotFound, Snapshot, SnapshotNotFound
from tests.integration.children import run
from tests.store.other_process import roll_back_and_say
from tests.store.places import Place
from tests.store.speech import say, say_each, words


def test_a_snapshot_says_what_it_is_of(store: Any, clock: Any) -> None:
    receipt = say(store, "a", "1", "2")
    snapshot = store.save_snapshot("a", "before the tool")
    assert snapshot == Snapshot(snapshot.id, "a", receipt.life, "before the tool", 2, 2, clock.now)


def test_snapshots_are_listed_in_the_order_they_were_taken(store: Any) -> None:
    taken = [store.save_snapshot("a", label) for label in ("z", "a", None, "m")]
    assert store.list_snapshots("a") == taken


def test_snapshot_ids_are_unique_across_sessions(store: Any) -> None:
    ids = {store.save_snapshot(name).id for name in "abcdefgh" for _ in range(3)}
    assert len(ids) == 24


def test_labels_need_not_be_unique(store: Any) -> None:
    store.save_snapshot("a", "same")
    store.save_snapshot("a", "same")
    assert [snapshot.label for snapshot in store.list_snapshots("a")] == ["same", "same"]


def test_a_rollback_returns_to_the_snapshot(store: Any) -> None:
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", "3", "4")
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["1", "2"]


def test_a_rollback_takes_a_snapshot_or_its_id(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot.id)
    assert words(store, "a") == ["1"]


def test_rollbacks_remove_no_snapshot(store: Any) -> None:
    say(store, "a", "1")
    early = store.save_snapshot("a")
    say(store, "a", "2")
    late = store.save_snapshot("a")
    store.rollback_to_snapshot("a", early)
    assert store.list_snapshots("a") == [early, late]


def test_undo_removes_no_snapshot(store: Any) -> None:
    say(store, "a", "1")
    early = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", early)
    late = store.save_snapshot("a")
    store.undo("a")
    assert store.list_snapshots("a") == [early, late]


def test_back_and_forth_as_often_as_one_likes(store: Any) -> None:
    snapshots = []
    for text in "1234":
        say(store, "a", text)
        snapshots.append(store.save_snapshot("a"))
    for index in (0, 3, 1, 2, 0, 2, 3, 1):
        store.rollback_to_snapshot("a", snapshots[index])
        assert words(store, "a") == list("1234"[: index + 1])


def test_turns_after_a_rollback_follow_the_snapshot(store: Any) -> None:
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", "3", "4")
    store.rollback_to_snapshot("a", snapshot)
    say(store, "a", "5")
    assert words(store, "a") == ["1", "2", "5"]
    assert [message.seq for message in store.get_history("a")] == [1, 2, 5]


def test_a_branch_left_behind_can_be_returned_to(store: Any) -> None:
    say(store, "a", "1")
    start = store.save_snapshot("a")
    say(store, "a", "left")
    left = store.save_snapshot("a")
    store.rollback_to_snapshot("a", start)
    say(store, "a", "right")
    right = store.save_snapshot("a")
    store.rollback_to_snapshot("a", left)
    say(store, "a", "left again")
    assert words(store, "a") == ["1", "left", "left again"]
    store.rollback_to_snapshot("a", right)
    assert words(store, "a") == ["1", "right"]


def test_a_rollback_to_where_one_stands_changes_nothing(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    before = store.state("a")
    store.rollback_to_snapshot("a", snapshot)
    assert store.state("a") == before


def test_a_rollback_brings_back_what_was_trimmed_or_cleared_since(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    store.trim("a", max_messages=1)
    store.clear("a")
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["1", "2", "3"]


def test_a_snapshot_of_a_trimmed_history_stays_trimmed(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=1)
    snapshot = store.save_snapshot("a")
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3"]
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["3"]


def test_a_snapshot_of_an_absent_session_begins_it(store: Any) -> None:
    snapshot = store.save_snapshot("a", "nothing yet")
    assert (snapshot.version, snapshot.messages) == (1, 0)
    say(store, "a", "1")
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == []


def test_a_deleted_snapshot_is_gone_and_the_others_stay(store: Any) -> None:
    say(store, "a", "1")
    one, two = store.save_snapshot("a"), store.save_snapshot("a")
    store.delete_snapshot("a", one)
    assert store.list_snapshots("a") == [two]
    with pytest.raises(SnapshotNotFound):
        store.rollback_to_snapshot("a", one)
    with pytest.raises(SnapshotNotFound):
        store.delete_snapshot("a", one)


def test_deleting_a_snapshot_leaves_the_history_alone(store: Any) -> None:
    say(store, "a", "1")
    store.delete_snapshot("a", store.save_snapshot("a"))
    assert words(store, "a") == ["1"]


def test_a_snapshot_of_another_session_is_refused(store: Any) -> None:
    say_each(store, "a", "1")
    say_each(store, "b", "2")
    others = store.save_snapshot("b")
    for refused in (store.rollback_to_snapshot, store.delete_snapshot):
        with pytest.raises(SnapshotNotFound):
            refused("a", others)
    with pytest.raises(SnapshotNotFound):
        store.get_history("a", at=others)
    assert words(store, "a") == ["1"]
    assert store.list_snapshots("b") == [others]


def test_a_snapshot_of_an_earlier_life_is_refused(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    store.erase("a")
    say(store, "a", "2")
    with pytest.raises(SnapshotNotFound):
        store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["2"]


def test_an_unknown_snapshot_changes_nothing(store: Any) -> None:
    say(store, "a", "1")
    before = store.state("a")
    with pytest.raises(SnapshotNotFound, match="list_snapshots"):
        store.rollback_to_snapshot("a", "no-such")
    assert store.state("a") == before


def test_there_is_nothing_to_roll_back_in_an_absent_session(store: Any) -> None:
    with pytest.raises(SessionNotFound) as caught:
        store.rollback_to_snapshot("nobody", "any")
    assert caught.value.session_id == "nobody"


@pytest.mark.parametrize("snapshot", [None, 7, b"id", ""])
def test_what_is_no_snapshot_is_refused(one_store: Any, snapshot: object) -> None:
    say(one_store, "a", "1")
    with pytest.raises(InvalidInput, match="snapshot"):
        one_store.rollback_to_snapshot("a", snapshot)


@pytest.mark.parametrize("label", ["", 7, "x" * 513, "\ud800", "a\0b"])
def test_what_is_no_label_is_refused(one_store: Any, label: object) -> None:
    with pytest.raises(InvalidInput, match="label"):
        one_store.save_snapshot("a", label)


@pytest.mark.where(shared=True)
def test_the_incident_a_snapshot_outlives_the_rollback_of_another_process(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    snapshot = store.save_snapshot("a", "safe")
    say(store, "a", "3")
    store.close()
    assert run(roll_back_and_say, lasting.url, snapshot.id, "b").split() == ["1", "2", "b"]
    assert run(roll_back_and_say, lasting.url, snapshot.id, "c").split() == ["1", "2", "c"]
    again = lasting.open()
    assert again.list_snapshots("a") == [snapshot]
    again.rollback_to_snapshot("a", snapshot)
    assert words(again, "a") == ["1", "2"]
