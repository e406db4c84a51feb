"""save_context and load_memory: the two-string face of a turn."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput
from tests.store.speech import assistant, calling, result, system, user, words


def test_a_context_is_one_turn_of_two_messages(store: Any) -> None:
    receipt = store.save_context("a", "hello", "hi there")
    assert (receipt.version, receipt.seqs) == (1, (1, 2))
    assert store.get_history("a") == [user("hello"), assistant("hi there")]


def test_contexts_come_back_as_pairs(store: Any) -> None:
    store.save_context("a", "1", "one")
    store.save_context("a", "2", "two")
    assert store.load_memory("a") == [{"human": "1", "ai": "one"}, {"human": "2", "ai": "two"}]


def test_empty_strings_are_strings(store: Any) -> None:
    store.save_context("a", "", "")
    assert store.load_memory("a") == [{"human": "", "ai": ""}]


def test_a_question_without_an_answer_has_an_empty_one(store: Any) -> None:
    store.add_messages("a", [user("1"), user("2")])
    assert store.load_memory("a") == [{"human": "1", "ai": ""}, {"human": "2", "ai": ""}]


def test_an_answer_without_a_question_has_an_empty_one(store: Any) -> None:
    store.add_messages("a", [assistant("welcome")])
    assert store.load_memory("a") == [{"human": "", "ai": "welcome"}]


def test_tools_and_system_messages_take_no_part(store: Any) -> None:
    store.add_messages("a", [system("s"), user("q"), calling("c"), result("c"), assistant("the answer")])
    assert store.load_memory("a") == [{"human": "q", "ai": "the answer"}]


def test_parts_are_read_as_their_text(store: Any) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": "u"}}, "two"]
    store.add_messages("a", [ChatMessage("user", parts)])
    assert store.load_memory("a") == [{"human": "one\ntwo", "ai": ""}]


@pytest.mark.parametrize(("human", "ai", "path"), [(1, "x", "human"), ("x", None, "ai"), (b"x", "y", "human")])
def test_what_is_no_string_is_refused(one_store: Any, human: Any, ai: Any, path: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{path}: "):
        one_store.save_context("a", human, ai)


def test_a_rolled_back_context_is_not_loaded(store: Any) -> None:
    store.save_context("a", "1", "one")
    snapshot = store.save_snapshot("a")
    store.save_context("a", "2", "two")
    store.rollback_to_snapshot("a", snapshot)
    assert store.load_memory("a") == [{"human": "1", "ai": "one"}]
    assert words(store, "a") == ["1", "one"]
