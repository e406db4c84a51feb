"""Tool calls and their results, pairs of question and answer: against plain statements."""

from __future__ import annotations

import pytest
from hypothesis import given

from everturn import ChatMessage
from everturn.core import tool_calls as tool_calls_rules
from tests.model.model_store import calls_of, results_of
from tests.unit.examples import conversations, few

messages_only = conversations().map(
    lambda stored: [item.entry for item in stored if isinstance(item.entry, ChatMessage)]
)


@few
@given(messages=messages_only)
def test_calls_and_results_are_found_in_both_dialects(messages: list[ChatMessage]) -> None:
    assert [tool_calls_rules.calls_in(message) for message in messages] == [calls_of(message) for message in messages]
    assert [tool_calls_rules.results_in(message) for message in messages] == [
        results_of(message) for message in messages
    ]


def test_shapes_that_are_no_tool_calls_are_passed_over() -> None:
    odd = ChatMessage(
        "assistant", ["text", {"type": "tool_use"}, {"type": "tool_use", "id": 5}, {"type": "x", "id": "c"}]
    )
    assert tool_calls_rules.calls_in(odd) == set()
    assert tool_calls_rules.calls_in(ChatMessage("assistant", None, tool_calls=["x", {"id": None}, {}])) == set()
    assert (
        tool_calls_rules.results_in(
            ChatMessage("user", [{"type": "tool_result"}, {"type": "text", "tool_use_id": "c"}])
        )
        == set()
    )


@few
@given(messages=messages_only)
def test_without_orphans_begins_with_something_else_than_a_result(messages: list[ChatMessage]) -> None:
    rest = tool_calls_rules.without_orphans(messages)
    assert messages[len(messages) - len(rest) :] == rest
    assert all(m.role == "tool" or results_of(m) for m in messages[: len(messages) - len(rest)])
    assert not rest or not (rest[0].role == "tool" or results_of(rest[0]))


def test_a_result_message_without_an_id_is_an_orphan_too() -> None:
    user = ChatMessage("user", "q")
    assert tool_calls_rules.without_orphans([ChatMessage("tool", "r"), user]) == [user]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("", []),
        ("u", [("u0", "")]),
        ("a", [("", "a0")]),
        ("ua", [("u0", "a1")]),
        ("uaa", [("u0", "a2")]),
        ("uu", [("u0", ""), ("u1", "")]),
        ("uua", [("u0", ""), ("u1", "a2")]),
        ("aua", [("", "a0"), ("u1", "a2")]),
        ("suta", [("u1", "a3")]),
    ],
)
def test_pairs_of_what_was_asked_and_answered(roles: str, expected: list[tuple[str, str]]) -> None:
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    messages = [ChatMessage(names[role], f"{role}{index}") for index, role in enumerate(roles)]
    assert [(pair["human"], pair["ai"]) for pair in tool_calls_rules.pairs(messages)] == expected


def test_an_answer_without_words_does_not_replace_one_with_words() -> None:
    messages = [
        ChatMessage("user", "q"),
        ChatMessage("assistant", "so"),
        ChatMessage("assistant", None, tool_calls=[{"id": "c"}]),
    ]
    assert tool_calls_rules.pairs(messages) == [{"human": "q", "ai": "so"}]
