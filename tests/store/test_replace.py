"""Replace: edit, regenerate, pop and set, each as one undoable step."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, Summary, ToolCall
from tests.store.speech import assistant, say, say_each, system, user, words


def test_replace_sets_the_whole_history(store: Any) -> None:
    say_each(store, "a", "1", "2")
    store.replace("a", [user("x"), assistant("y")])
    assert words(store, "a") == ["x", "y"]


def test_replace_regenerates_the_last_answer(store: Any) -> None:
    store.save_context("a", "q", "bad")
    receipt = store.replace("a", [assistant("good")], after=1)
    assert words(store, "a") == ["q", "good"]
    assert receipt.seqs == (3,)


def test_replace_by_nothing_pops(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    assert store.replace("a", [], after=2).seqs == ()
    assert words(store, "a") == ["1", "2"]


def test_replace_by_nothing_of_all_empties(store: Any) -> None:
    say_each(store, "a", "1", "2")
    store.replace("a", [])
    assert words(store, "a") == []
    assert store.info("a").messages == 0


def test_replace_after_the_last_entry_is_an_append_that_can_be_undone(store: Any) -> None:
    say(store, "a", "1")
    store.replace("a", [user("2")], after=1)
    assert words(store, "a") == ["1", "2"]
    store.undo("a")
    assert words(store, "a") == ["1"]


def test_replace_by_nothing_after_the_last_entry_changes_nothing(store: Any) -> None:
    say(store, "a", "1")
    before = store.state("a")
    store.replace("a", [], after=1)
    assert store.state("a") == before


def test_replace_begins_an_absent_session(store: Any) -> None:
    assert store.replace("a", [user("1")]).version == 1
    assert words(store, "a") == ["1"]


def test_replace_by_nothing_begins_no_session(store: Any) -> None:
    store.replace("a", [])
    assert store.sessions().sessions == ()


def test_replace_takes_everything_behind_it_along(store: Any) -> None:
    say(store, "a", "1")
    store.add_tool_call("a", ToolCall("f", {}))
    store.add_summary("a", Summary("s", [1.0], (1, 1)))
    store.replace("a", [user("2")], after=1)
    assert store.get_tool_calls("a") == []
    assert store.get_summaries("a") == []


@pytest.mark.parametrize("after", [3, 99, 2**32 + 1, 2**70])
def test_replace_after_an_entry_that_is_not_in_the_history_is_refused(store: Any, after: int) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", "2", "3")
    store.rollback_to_snapshot("a", snapshot)
    say(store, "b", "another's")
    before = store.state("a")
    with pytest.raises(InvalidInput, match=r"^after: "):
        store.replace("a", [user("x")], after=after)
    assert store.state("a") == before


def test_replace_after_something_in_an_absent_session_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^after: "):
        store.replace("a", [user("x")], after=1)
    assert store.sessions().sessions == ()


def test_replace_in_a_trimmed_history_keeps_what_the_trim_kept(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=3)
    assert words(store, "a") == ["s", "2", "3"]
    store.replace("a", [user("x")], after=3)
    assert words(store, "a") == ["s", "2", "x"]
    assert store.info("a").messages == 3


def test_replace_below_a_trim_leaves_the_kept_before_it(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", "1", "2", "3")
    store.trim("a", max_messages=2)
    store.replace("a", [user("x")], after=2)
    assert words(store, "a") == ["s", "x"]
    store.undo("a")
    assert words(store, "a") == ["s", "3"]


def test_replace_works_across_branches(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.replace("a", [user("4")], after=2)
    store.replace("a", [user("5")], after=1)
    store.undo("a")
    store.replace("a", [user("6")], after=4)
    assert words(store, "a") == ["1", "2", "4", "6"]


def test_a_bad_entry_moves_nothing(store: Any) -> None:
    say_each(store, "a", "1", "2")
    before = store.state("a")
    with pytest.raises(InvalidInput):
        store.replace("a", [user("x", metadata={"x": {1}})])
    assert store.state("a") == before
