"""Rollback to a version, or to a snapshot: it takes everything along that was said since."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import (
    InvalidInput,
    KeyReused,
    Record,
    SessionNotFound,
    SnapshotNotFound,
    Summary,
    ToolCall,
    VersionConflict,
)
from tests.store.speech import say, say_each, user, words


def test_a_rollback_takes_tool_calls_summaries_and_records_along(store: Any) -> None:
    def turn(number: int) -> list[Any]:
        embedding = [float(number), 1.0]
        return [
            user(f"m{number}"),
            ToolCall("f", number),
            Summary(f"s{number}", embedding, (1, 1)),
            Record("r", number),
        ]

    store.append("a", turn(1))
    snapshot = store.save_snapshot("a")
    before = store.state("a").entries
    store.append("a", turn(2))
    store.rollback_to_snapshot("a", snapshot)
    assert store.state("a").entries == before
    assert [call.arguments for call in store.get_tool_calls("a")] == [1]
    assert [summary.text for summary in store.get_summaries("a")] == ["s1"]
    assert [hit.summary.text for hit in store.search_summaries("a", [2.0, 1.0])] == ["s1"]
    assert store.find("m2", session_id="a") == []


def test_an_undo_brings_back_the_tool_calls_and_summaries_that_a_rollback_took(store: Any) -> None:
    snapshot = store.save_snapshot("a")
    store.append("a", [user("m"), ToolCall("f", 1), Summary("s", [1.0, 0.0], (1, 1)), Record("r", 1)])
    said = store.state("a").entries
    store.rollback_to_snapshot("a", snapshot)
    assert (store.get_tool_calls("a"), store.get_summaries("a")) == ([], [])
    store.undo("a")
    assert store.state("a").entries == said
    assert [call.arguments for call in store.get_tool_calls("a")] == [1]
    assert [hit.summary.text for hit in store.search_summaries("a", [1.0, 0.0])] == ["s"]


def test_a_session_returns_to_a_version(store: Any) -> None:
    say_each(store, "a", *"1234")
    receipt = store.rollback("a", 2)
    assert (receipt.version, words(store, "a")) == (5, ["1", "2"])
    say(store, "a", "5")
    assert words(store, "a") == ["1", "2", "5"]
    assert store.verify().ok


def test_a_rollback_to_a_version_can_be_undone(store: Any) -> None:
    say_each(store, "a", *"123")
    store.rollback("a", 1)
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3"]


def test_version_zero_is_the_empty_session(store: Any) -> None:
    say_each(store, "a", *"12")
    store.rollback("a", 0)
    assert words(store, "a") == []
    store.rollback("a", 2)
    assert words(store, "a") == ["1", "2"]


def test_a_version_brings_back_its_trim_and_its_clear(store: Any) -> None:
    say_each(store, "a", *"1234")
    store.trim("a", max_messages=2)
    store.clear("a")
    store.rollback("a", 5)
    assert words(store, "a") == ["3", "4"]
    store.rollback("a", 4)
    assert words(store, "a") == ["1", "2", "3", "4"]


def test_a_snapshot_or_its_id_will_do(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    for named in (snapshot, snapshot.id):
        say(store, "a", "2")
        store.rollback("a", named)
        assert words(store, "a") == ["1"]


def test_a_rollback_that_changes_nothing_uses_no_version(store: Any) -> None:
    say_each(store, "a", *"12")
    before = store.state("a")
    assert store.rollback("a", 2).version == 2
    assert store.state("a") == before


def test_the_log_says_where_it_went(store: Any) -> None:
    say_each(store, "a", *"12")
    store.rollback("a", 1)
    (change,) = store.changes("a", 1)
    assert (change.kind, change.snapshot, change.label) == ("rollback", None, "version 1")


def test_a_retry_with_a_key_is_made_once(store: Any) -> None:
    say_each(store, "a", *"123")
    first = store.rollback("a", 1, key="k")
    say(store, "a", "4")
    again = store.rollback("a", 1, key="k")
    assert (again.version, again.replayed, words(store, "a")) == (first.version, True, ["1", "4"])
    with pytest.raises(KeyReused):
        store.rollback("a", 2, key="k")


def test_an_unexpected_version_changes_nothing(store: Any) -> None:
    say_each(store, "a", *"123")
    with pytest.raises(VersionConflict):
        store.rollback("a", 1, expected_version=2)
    assert words(store, "a") == ["1", "2", "3"]


def test_what_is_not_there_is_refused(store: Any) -> None:
    with pytest.raises(SessionNotFound):
        store.rollback("a", 1)
    say_each(store, "a", *"12")
    with pytest.raises(InvalidInput, match=r"^to: .*version 9"):
        store.rollback("a", 9)
    with pytest.raises(InvalidInput, match="version"):
        store.rollback("a", 2**60)
    with pytest.raises(SnapshotNotFound):
        store.rollback("a", "none")
    for wrong in (None, -1, 1.5, True):
        with pytest.raises(InvalidInput, match="to"):
            store.rollback("a", wrong)
    assert words(store, "a") == ["1", "2"]


def test_a_version_that_compact_reclaimed_is_refused(store: Any) -> None:
    say_each(store, "a", *"12")
    store.rollback("a", 1)
    store.compact("a", drop_undo=True)
    with pytest.raises(InvalidInput, match="version 2"):
        store.rollback("a", 2)
    assert words(store, "a") == ["1"]
