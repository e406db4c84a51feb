"""Clear: an empty history, one undo away from the full one."""

from __future__ import annotations

from typing import Any

from everturn import Summary, ToolCall
from tests.store.places import Place
from tests.store.speech import say, say_each, system, words


def test_clear_empties_the_history(store: Any) -> None:
    store.add_messages("a", [system("s")])
    say_each(store, "a", "1", "2")
    store.add_tool_call("a", ToolCall("f", {}))
    store.add_summary("a", Summary("s", [1.0], (1, 1)))
    store.clear("a")
    assert store.state("a").entries == ()
    assert store.info("a").messages == 0
    assert store.search_summaries("a", [1.0]) == []


def test_turns_after_a_clear_are_seen(store: Any) -> None:
    say(store, "a", "1")
    store.clear("a")
    assert say(store, "a", "2").seqs == (2,)
    assert words(store, "a") == ["2"]


def test_clear_keeps_snapshots(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    store.clear("a")
    assert store.list_snapshots("a") == [snapshot]
    store.rollback_to_snapshot("a", snapshot)
    assert words(store, "a") == ["1"]


def test_clear_of_an_empty_history_changes_nothing(store: Any) -> None:
    say(store, "a", "1")
    store.clear("a")
    before = store.state("a")
    assert store.clear("a").version == before.version
    assert store.state("a") == before


def test_clear_of_an_absent_session_begins_none(store: Any) -> None:
    assert store.clear("a").version == 0
    assert store.sessions().sessions == ()


def test_clear_touches_no_other_session(store: Any) -> None:
    say(store, "a", "1")
    say(store, "ab", "2")
    store.clear("a")
    assert words(store, "ab") == ["2"]


def test_clear_all_clears_every_session_and_counts_them(store: Any) -> None:
    for name in ("a", "b", "c"):
        say(store, name, "1")
    store.clear("b")
    assert store.clear_all() == 2
    assert [info.messages for info in store.sessions().sessions] == [0, 0, 0]


def test_clear_all_can_be_undone_session_by_session(store: Any) -> None:
    say(store, "a", "1")
    say(store, "b", "2")
    store.clear_all()
    store.undo("a")
    assert (words(store, "a"), words(store, "b")) == (["1"], [])


def test_clear_all_of_nothing_is_zero(store: Any) -> None:
    assert store.clear_all() == 0


def test_clear_all_stays_in_its_namespace(lasting: Place) -> None:
    mine, theirs = lasting.open(namespace="mine"), lasting.open(namespace="theirs")
    say(mine, "a", "1")
    say(theirs, "a", "2")
    assert mine.clear_all() == 1
    assert words(theirs, "a") == ["2"]
