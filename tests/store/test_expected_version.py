"""Conditional changes: `expected_version` as a number, a receipt or a state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everturn import InvalidInput, VersionConflict
from tests.store.speech import say, say_each, words


def test_the_right_version_lets_a_change_through(store: Any) -> None:
    say(store, "a", "1")
    assert say(store, "a", "2", expected_version=1).version == 2


def test_a_stale_version_changes_nothing(store: Any) -> None:
    say_each(store, "a", "1", "2")
    before = store.state("a")
    with pytest.raises(VersionConflict) as caught:
        say(store, "a", "3", expected_version=1)
    assert (caught.value.session_id, caught.value.expected, caught.value.actual) == ("a", 1, 2)
    assert store.state("a") == before


def test_a_conflict_says_where_the_session_stands(store: Any) -> None:
    say_each(store, "a", "1", "2")
    with pytest.raises(VersionConflict, match="session 'a' is at version 2, not 7; re-read and retry"):
        say(store, "a", "3", expected_version=7)


def test_zero_means_the_session_must_not_exist(store: Any) -> None:
    say(store, "a", "1", expected_version=0)
    with pytest.raises(VersionConflict):
        say(store, "a", "2", expected_version=0)


def test_an_absent_session_is_at_version_zero(store: Any) -> None:
    with pytest.raises(VersionConflict) as caught:
        say(store, "a", "1", expected_version=1)
    assert caught.value.actual == 0
    assert store.sessions().sessions == ()


def test_a_receipt_is_a_version(store: Any) -> None:
    first = say(store, "a", "1")
    say(store, "a", "2", expected_version=first)
    with pytest.raises(VersionConflict):
        say(store, "a", "3", expected_version=first)


def test_a_state_is_a_version(store: Any) -> None:
    say(store, "a", "1")
    state = store.state("a")
    say(store, "a", "2", expected_version=state)
    with pytest.raises(VersionConflict):
        say(store, "a", "3", expected_version=state)


def test_the_state_of_an_absent_session_expects_it_to_be_absent(store: Any) -> None:
    nothing = store.state("a")
    say(store, "a", "1", expected_version=nothing)
    with pytest.raises(VersionConflict):
        say(store, "a", "2", expected_version=nothing)


def test_a_receipt_of_an_earlier_life_conflicts_at_the_same_version(store: Any) -> None:
    receipt = say(store, "a", "1")
    store.erase("a")
    say(store, "a", "1")
    with pytest.raises(VersionConflict, match="another life"):
        say(store, "a", "2", expected_version=receipt)
    assert words(store, "a") == ["1"]


def test_a_state_of_an_earlier_life_conflicts_at_the_same_version(store: Any) -> None:
    say(store, "a", "1")
    state = store.state("a")
    store.erase("a")
    say(store, "a", "1")
    with pytest.raises(VersionConflict):
        say(store, "a", "2", expected_version=state)


def test_a_bare_number_does_not_ask_for_the_life(store: Any) -> None:
    say(store, "a", "1")
    store.erase("a")
    say(store, "a", "1")
    assert say(store, "a", "2", expected_version=1).version == 2


def test_a_change_that_changes_nothing_uses_no_version(store: Any) -> None:
    receipt = say(store, "a", "1")
    store.trim("a", max_messages=10)
    store.add_messages("a", [])
    assert say(store, "a", "2", expected_version=receipt).version == 2


def test_a_stale_version_is_a_conflict_also_where_nothing_would_change(store: Any) -> None:
    say_each(store, "a", "1", "2")
    for change in (
        lambda: store.trim("a", max_messages=10, expected_version=1),
        lambda: store.add_messages("a", [], expected_version=1),
        lambda: store.clear("nobody", expected_version=1),
    ):
        with pytest.raises(VersionConflict):
            change()


@pytest.mark.parametrize("expected", [-1, 1.0, "1", True, object()])
def test_what_is_no_version_is_refused(one_store: Any, expected: object) -> None:
    with pytest.raises(InvalidInput, match="expected_version"):
        say(one_store, "a", "1", expected_version=expected)


def test_fork_expects_the_version_of_the_session_it_copies(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(VersionConflict) as caught:
        store.fork("a", "b", expected_version=7)
    assert (caught.value.session_id, caught.value.actual) == ("a", 1)
    store.fork("a", "b", expected_version=1)
    assert words(store, "b") == ["1"]


def test_one_of_two_who_expect_the_same_version_wins(store: Any) -> None:
    say(store, "a", "1")
    receipt = say(store, "a", "mine", expected_version=1)
    with pytest.raises(VersionConflict):
        say(store, "a", "theirs", expected_version=1)
    assert receipt.version == 2
    assert words(store, "a") == ["1", "mine"]


@pytest.mark.parametrize("version", [2**53, 2**63, 2**64, 10**400])
def test_a_version_that_no_session_reaches_is_a_conflict(store: Any, version: int) -> None:
    before = say(store, "a", "1")
    for expected in (version, msgspec.structs.replace(before, version=version)):
        with pytest.raises(VersionConflict) as caught:
            say(store, "a", "2", expected_version=expected)
        assert caught.value.actual == 1
    assert words(store, "a") == ["1"]


@pytest.mark.parametrize("life", ["a\0b", "\ud800", "x" * 600, 5, None, b"x"])
def test_a_receipt_with_a_life_that_is_none_is_refused(store: Any, life: Any) -> None:
    receipt = msgspec.structs.replace(say(store, "a", "1"), life=life)
    with pytest.raises(InvalidInput) as caught:
        say(store, "a", "2", expected_version=receipt)
    assert caught.value.path == "expected_version.life"
    assert words(store, "a") == ["1"]


@pytest.mark.parametrize("version", [None, -1, True, 1.0, "1"])
def test_a_receipt_with_a_version_that_is_none_is_refused(store: Any, version: Any) -> None:
    receipt = msgspec.structs.replace(say(store, "a", "1"), version=version)
    with pytest.raises(InvalidInput) as caught:
        say(store, "a", "2", expected_version=receipt)
    assert caught.value.path == "expected_version.version"
    assert words(store, "a") == ["1"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "", "x" * 600, 5, None])
def test_a_snapshot_with_an_id_that_is_none_is_refused(store: Any, name: Any) -> None:
    say(store, "a", "1")
    snapshot = msgspec.structs.replace(store.save_snapshot("a"), id=name)
    for call in (store.rollback, store.rollback_to_snapshot, store.delete_snapshot, store.diff):
        with pytest.raises(InvalidInput):
            call("a", snapshot)
    for read in (store.get_history, store.get_context, store.state):
        with pytest.raises(InvalidInput):
            read("a", at=snapshot)
