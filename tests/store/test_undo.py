"""Undo: the latest rollback, replace, trim, fold or clear, taken back; a stack of ten, and no redo."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, SessionNotFound, VersionConflict
from tests.store.places import Place
from tests.store.speech import say, say_each, system, user, words


def test_undo_takes_back_a_rollback(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    store.undo("a")
    assert words(store, "a") == ["1", "2"]


def test_undo_takes_back_a_replace(store: Any) -> None:
    say_each(store, "a", "1", "2")
    store.replace("a", [user("x")], after=1)
    store.undo("a")
    assert words(store, "a") == ["1", "2"]


def test_undo_takes_back_a_trim(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=2)
    assert words(store, "a") == ["s", "3"]
    store.undo("a")
    assert words(store, "a") == ["s", "1", "2", "3"]


def test_undo_takes_back_a_clear(store: Any) -> None:
    say_each(store, "a", "1", "2")
    store.clear("a")
    store.undo("a")
    assert words(store, "a") == ["1", "2"]


def test_undo_is_a_change_with_a_version_of_its_own(store: Any) -> None:
    say(store, "a", "1")
    store.clear("a")
    assert store.undo("a").version == 3


@pytest.mark.parametrize("shorten", ["trim", "clear"])
def test_undo_of_a_trim_or_clear_keeps_later_turns(store: Any, shorten: str) -> None:
    say_each(store, "a", "1", "2", "3")
    if shorten == "trim":
        store.trim("a", max_messages=1)
    else:
        store.clear("a")
    say_each(store, "a", "4", "5")
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3", "4", "5"]
    assert store.info("a").messages == 5


def test_undo_of_a_clear_brings_back_what_an_earlier_trim_left(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=2)
    store.clear("a")
    say(store, "a", "4")
    store.undo("a")
    assert words(store, "a") == ["2", "3", "4"]
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3", "4"]


def test_undo_of_a_rollback_that_turns_followed_conflicts(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    say(store, "a", "3")
    before = store.state("a")
    with pytest.raises(VersionConflict) as caught:
        store.undo("a")
    assert caught.value.actual == before.version
    assert store.state("a") == before


def test_undo_of_a_replace_that_turns_followed_conflicts(store: Any) -> None:
    say_each(store, "a", "1", "2")
    store.replace("a", [user("x")], after=1)
    say(store, "a", "3")
    with pytest.raises(VersionConflict, match="expected_version=4"):
        store.undo("a")


def test_naming_the_version_drops_the_turns_that_followed(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    receipt = say(store, "a", "3")
    store.undo("a", expected_version=receipt)
    assert words(store, "a") == ["1", "2"]


def test_what_is_no_turn_does_not_stand_against_an_undo(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    store.save_snapshot("a")
    store.set_ttl("a", 1000)
    store.undo("a")
    assert words(store, "a") == ["1", "2"]


def test_undo_goes_back_step_by_step(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=2)
    store.replace("a", [user("x")], after=2)
    store.clear("a")
    seen = [words(store, "a")]
    for _ in range(3):
        store.undo("a")
        seen.append(words(store, "a"))
    assert seen == [[], ["2", "x"], ["2", "3"], ["1", "2", "3"]]


def test_there_is_no_redo(store: Any) -> None:
    say(store, "a", "1")
    store.clear("a")
    store.undo("a")
    with pytest.raises(InvalidInput, match="no rollback, replace, trim, fold or clear"):
        store.undo("a")
    assert words(store, "a") == ["1"]


def test_the_stack_holds_ten_steps(store: Any) -> None:
    say(store, "a", "0")
    for number in range(1, 13):
        store.replace("a", [user(str(number))])
    assert store.info("a").undo_steps == 10
    for _ in range(10):
        store.undo("a")
    assert words(store, "a") == ["2"]
    with pytest.raises(InvalidInput):
        store.undo("a")


def test_a_turn_is_not_undone(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(InvalidInput):
        store.undo("a")


def test_there_is_nothing_to_undo_in_an_absent_session(store: Any) -> None:
    with pytest.raises(SessionNotFound):
        store.undo("nobody")


def test_undo_works_in_a_store_opened_later(lasting: Place) -> None:
    store = lasting.open()
    say_each(store, "a", "1", "2")
    store.clear("a")
    store.close()
    again = lasting.open()
    again.undo("a")
    assert words(again, "a") == ["1", "2"]
