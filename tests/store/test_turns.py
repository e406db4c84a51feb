"""Turns: what one append writes, and what it gives back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, MemoryStoreBackendError, Record, Summary, ToolCall
from tests.integration.children import run
from tests.store.other_process import read_first
from tests.store.places import Place
from tests.store.speech import assistant, say, say_each, user, words


def test_a_turn_comes_back_in_order(store: Any) -> None:
    store.add_messages("a", [user("one"), assistant("two"), user("three")])
    assert words(store, "a") == ["one", "two", "three"]


def test_a_receipt_names_the_entries_it_wrote(store: Any) -> None:
    say(store, "a", "one")
    receipt = say(store, "a", "two", "three")
    assert receipt.seqs == (2, 3)
    assert [message.seq for message in store.get_history("a", after=1)] == [2, 3]


def test_a_receipt_names_session_life_and_version(store: Any) -> None:
    first, second = say_each(store, "a", "one", "two")
    assert (first.session_id, first.version, first.replayed) == ("a", 1, False)
    assert second.version == 2
    assert second.life == first.life == store.info("a").life


def test_every_session_has_a_life_of_its_own(store: Any) -> None:
    assert say(store, "a", "x").life != say(store, "b", "x").life


def test_seqs_are_never_reused_after_a_rollback(store: Any) -> None:
    say(store, "a", "one")
    snapshot = store.save_snapshot("a")
    say(store, "a", "two")
    store.rollback_to_snapshot("a", snapshot)
    assert say(store, "a", "three").seqs == (3,)


def test_an_empty_turn_changes_nothing(store: Any) -> None:
    say(store, "a", "one")
    before = store.state("a")
    receipt = store.add_messages("a", [])
    assert (receipt.version, receipt.seqs) == (1, ())
    assert store.state("a") == before


def test_an_empty_turn_begins_no_session(store: Any) -> None:
    assert store.add_messages("a", []).version == 0
    assert store.sessions().sessions == ()


def test_a_turn_may_mix_all_kinds_of_entries(store: Any) -> None:
    entries = [user("hi"), ToolCall("f", {"x": 1}), Summary("s", [1.0, 0.0], (1, 1)), Record("checkpoint", {"step": 1})]
    store.append("a", entries)
    state = store.state("a")
    assert [type(entry) for entry in state.entries] == [ChatMessage, ToolCall, Summary, Record]
    assert [entry.seq for entry in state.entries] == [1, 2, 3, 4]


def test_a_generator_is_a_turn_like_any_other(store: Any) -> None:
    store.add_messages("a", (user(str(n)) for n in range(3)))
    assert words(store, "a") == ["0", "1", "2"]


def test_a_dict_is_a_message(store: Any) -> None:
    store.add_messages("a", [{"role": "user", "content": "hi"}])
    assert store.get_history("a") == [user("hi")]


def test_add_messages_refuses_other_entries(store: Any) -> None:
    with pytest.raises(InvalidInput, match="messages"):
        store.add_messages("a", [ToolCall("f", {})])


@pytest.mark.parametrize("entries", ["hello", b"hello", {"role": "user", "content": "hi"}, None, 7])
def test_what_is_no_list_of_entries_is_refused(one_store: Any, entries: object) -> None:
    with pytest.raises(InvalidInput, match="must be a list"):
        one_store.add_messages("a", entries)


def test_one_bad_message_keeps_the_whole_turn_out(store: Any) -> None:
    with pytest.raises(InvalidInput):
        store.add_messages("a", [user("good"), user("bad", metadata={"x": float("nan")})])
    assert store.sessions().sessions == ()


def test_a_turn_of_a_thousand_messages_is_one_change(store: Any) -> None:
    receipt = say(store, "a", *map(str, range(1000)))
    assert receipt.version == 1
    assert words(store, "a") == list(map(str, range(1000)))


def test_a_turn_outlives_the_store_that_wrote_it(lasting: Place) -> None:
    store = lasting.open()
    say(store, "a", "kept")
    store.close()
    assert words(lasting.open(), "a") == ["kept"]


@pytest.mark.where(shared=True)
def test_another_process_sees_a_turn_at_once(lasting: Place) -> None:
    say(lasting.open(), "a", "kept")
    assert run(read_first, lasting.url).strip() == "kept"


def test_turns_of_many_threads_are_all_there_and_none_is_torn(store: Any) -> None:
    def write(name: int) -> None:
        for turn in range(10):
            say(store, "a", *(f"{name}.{turn}.{part}" for part in range(3)))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = words(store, "a")
    turns = [history[start : start + 3] for start in range(0, len(history), 3)]
    assert len(turns) == 60
    assert all([text.rsplit(".", 1)[0] for text in turn] == [turn[0][:-2]] * 3 for turn in turns)
    for name in range(6):
        mine = [turn[0] for turn in turns if turn[0].startswith(f"{name}.")]
        assert mine == [f"{name}.{turn}.0" for turn in range(10)]


def test_a_closed_store_says_so(store: Any) -> None:
    say(store, "a", "one")
    store.close()
    with pytest.raises(MemoryStoreBackendError, match="closed") as caught:
        say(store, "a", "two")
    assert caught.value.outcome == "not_written"


def test_a_closed_store_says_so_to_a_reader(store: Any) -> None:
    store.close()
    with pytest.raises(MemoryStoreBackendError, match="closed"):
        store.get_history("a")


def test_closing_twice_is_harmless(store: Any) -> None:
    store.close()
    store.close()
