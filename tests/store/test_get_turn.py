"""get_turn: the first answer, found by its key, before a model is paid for a second one."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, KeyReused, Summary, ToolCall
from everturn.core import codec
from tests.store.speech import assistant, say, say_each, user, words


def test_a_turn_is_found_by_its_key(store: Any) -> None:
    say(store, "a", "0")
    receipt = store.append("a", [user("1"), ToolCall("f", {}), assistant("2")], key="k")
    say(store, "a", "3")
    turn = store.get_turn("a", "k")
    assert (turn.receipt.version, turn.receipt.seqs, turn.receipt.life) == (2, receipt.seqs, receipt.life)
    assert turn.receipt.replayed
    assert [message.content for message in turn.messages] == ["1", "2"]
    assert [entry.seq for entry in turn.entries] == list(receipt.seqs)


def test_a_key_that_was_not_used_finds_nothing(store: Any) -> None:
    assert store.get_turn("absent", "k") is None
    say(store, "a", "1", key="k")
    before = store.state("a")
    assert store.get_turn("a", "other") is None
    assert store.get_turn("b", "k") is None
    assert store.state("a") == before
    assert [info.session_id for info in store.sessions().sessions] == ["a"]


def test_a_turn_is_found_though_it_is_out_of_view(store: Any) -> None:
    say(store, "a", "1", key="k")
    say_each(store, "a", "2", "3")
    store.fold("a", lambda *_: "s", max_messages=1)
    assert store.get_turn("a", "k").messages == (user("1"),)
    store.clear("a")
    assert store.get_turn("a", "k").messages == (user("1"),)


def test_a_turn_that_a_rollback_dropped_is_not_found(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", "2", key="k")
    store.rollback("a", 1)
    assert store.get_turn("a", "k") is None
    say(store, "a", "other", key="k")
    assert store.get_turn("a", "k").messages == (user("other"),)
    assert words(store, "a") == ["1", "other"]


def test_a_change_without_entries_is_found_with_its_receipt(store: Any) -> None:
    say_each(store, "a", "1", "2")
    receipt = store.trim("a", max_messages=1, key="k")
    turn = store.get_turn("a", "k")
    assert (turn.receipt.version, turn.entries) == (receipt.version, ())


def test_entries_that_compact_reclaimed_are_left_out(store: Any) -> None:
    say(store, "a", "1", key="k")
    say(store, "a", "2")
    store.clear("a")
    store.compact("a", drop_undo=True)
    turn = store.get_turn("a", "k")
    assert turn is None or turn.entries == ()


def test_the_content_does_not_matter(store: Any) -> None:
    store.add_summary("a", Summary("s", [1.0], (1, 1)), key="k")
    assert store.get_turn("a", "k").entries == (Summary("s", (1.0,), (1, 1)),)
    with pytest.raises(KeyReused) as caught:
        say(store, "a", "1", key="k")
    assert store.get_turn("a", "k").receipt == caught.value.receipt


def test_changes_say_which_of_them_had_a_key(store: Any) -> None:
    say(store, "a", "1", key="k")
    say(store, "a", "2")
    assert [change.key for change in store.changes("a")] == [None, codec.digest(b"k").hex()]


@pytest.mark.parametrize("key", ["", 3, "a\0b", None])
def test_what_is_no_key_is_refused(one_store: Any, key: Any) -> None:
    with pytest.raises(InvalidInput, match="key"):
        one_store.get_turn("a", key)
