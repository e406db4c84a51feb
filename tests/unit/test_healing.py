"""Healing: any history becomes a prompt that models accept, and loses nothing that can stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn import ChatMessage
from everturn.core.healing import HEALED, heal
from tests.unit.examples import IDS, many
from tests.unit.prompt_rules import refused_by_anthropic, refused_by_openai

ids = st.sampled_from((*IDS, "c1_2"))
texts = st.sampled_from("abc").map(lambda text: {"type": "text", "text": text})
uses = ids.map(lambda name: {"type": "tool_use", "id": name, "name": "f", "input": {}})
results = st.tuples(ids, st.integers(0, 9)).map(lambda r: {"type": "tool_result", "tool_use_id": r[0], "content": r[1]})
lists_of_calls = st.lists(ids.map(lambda name: {"id": name, "type": "function"}), min_size=1, max_size=3)

messages_of_any_kind = st.one_of(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant", "system", "developer"]), st.sampled_from("xyz")),
    st.builds(lambda calls: ChatMessage("assistant", None, tool_calls=calls), lists_of_calls),
    st.builds(lambda calls, text: ChatMessage("assistant", text, tool_calls=calls), lists_of_calls, st.just("so")),
    st.builds(lambda text: ChatMessage("assistant", text, tool_calls=[]), st.one_of(st.none(), st.just("no calls"))),
    st.builds(ChatMessage, st.just("assistant"), st.lists(st.one_of(texts, uses), min_size=1, max_size=3)),
    st.builds(lambda name, text: ChatMessage("tool", text, tool_call_id=name), ids, st.sampled_from("rst")),
    st.builds(ChatMessage, st.just("tool"), st.just("nobody asked")),
    st.builds(ChatMessage, st.just("user"), st.lists(st.one_of(texts, results), min_size=1, max_size=3)),
)
histories = st.lists(messages_of_any_kind, max_size=9)


def both_forms(name: str) -> ChatMessage:
    """An answer of Anthropic's as LangChain keeps it: the call stands in both forms."""
    return ChatMessage("assistant", [{"type": "tool_use", "id": name}], tool_calls=[{"id": name}])


def calling(*names: str) -> ChatMessage:
    return ChatMessage("assistant", None, tool_calls=[{"id": name} for name in names])


def using(*names: str) -> ChatMessage:
    return ChatMessage("assistant", [{"type": "tool_use", "id": name} for name in names])


def answer(name: str, text: str = "r") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=name)


def part(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "r"}


TEXT = {"type": "text", "text": "and now?"}
hello = ChatMessage("user", "hello?")


@many
@given(messages=histories)
def test_a_healed_history_is_accepted_by_both_sets_of_rules(messages: list[ChatMessage]) -> None:
    healed = heal(messages)
    assert refused_by_openai(healed) is None
    assert refused_by_anthropic(healed) is None


@many
@given(messages=histories)
def test_healing_twice_changes_nothing(messages: list[ChatMessage]) -> None:
    healed = heal(messages)
    assert heal(healed) == healed


@many
@given(messages=histories)
def test_a_history_that_is_accepted_is_left_as_it_is(messages: list[ChatMessage]) -> None:
    if refused_by_openai(messages) is None and refused_by_anthropic(messages) is None:
        assert heal(messages) == messages


@many
@given(messages=histories)
def test_no_call_and_no_word_is_lost(messages: list[ChatMessage]) -> None:
    def words(found: list[ChatMessage]) -> list[str]:
        return [message.text for message in found if message.text and message.role != "tool"]

    healed = heal(messages)
    assert words(healed) == words(messages)
    assert sum(len(m.tool_calls or []) for m in healed) == sum(len(m.tool_calls or []) for m in messages)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([calling("a"), hello, answer("a")], [calling("a"), answer("a"), hello]),
        ([calling("a"), answer("a"), answer("a", "again")], [calling("a"), answer("a")]),
        ([answer("a"), hello], [hello]),
        ([ChatMessage("assistant", "hi", tool_calls=[]), hello], [ChatMessage("assistant", "hi"), hello]),
        ([ChatMessage("tool", "no id"), hello], [hello]),
        ([using("a"), ChatMessage("user", [part("a"), TEXT])], [using("a"), ChatMessage("user", [part("a"), TEXT])]),
        (
            [using("a"), ChatMessage("user", [TEXT, part("a")])],
            [using("a"), ChatMessage("user", [part("a")]), ChatMessage("user", [TEXT])],
        ),
        ([hello, ChatMessage("user", [part("a"), TEXT])], [hello, ChatMessage("user", [TEXT])]),
        ([both_forms("a"), answer("a")], [both_forms("a"), answer("a")]),
        (
            [calling("a"), answer("a"), calling("a"), answer("a", "2")],
            [calling("a"), answer("a"), calling("a_2"), answer("a_2", "2")],
        ),
        (
            [calling("a", "a"), answer("a", "1"), answer("a", "2")],
            [calling("a", "a_2"), answer("a", "1"), answer("a_2", "2")],
        ),
    ],
)
def test_a_history_and_its_prompt(messages: list[ChatMessage], expected: list[ChatMessage]) -> None:
    assert heal(messages) == expected


def test_a_synthetic_result_has_the_form_of_its_call() -> None:
    _, tool, _, user = heal([calling("a"), using("b")])
    assert (tool.role, tool.tool_call_id, tool.content) == ("tool", "a", HEALED)
    assert (user.role, user.content) == (
        "user",
        [{"type": "tool_result", "tool_use_id": "b", "content": HEALED, "is_error": True}],
    )
    assert tool.metadata == user.metadata == {"healed": True}


def test_a_message_that_changes_in_nothing_is_the_same_object() -> None:
    messages = [hello, calling("a"), answer("a"), using("b"), ChatMessage("user", [part("b"), TEXT])]
    assert all(one is other for one, other in zip(heal(messages), messages, strict=True))


def test_odd_shapes_are_passed_over() -> None:
    odd = [
        ChatMessage("assistant", ["text", {"type": "tool_use"}, {"type": "tool_use", "id": 5}]),
        ChatMessage("assistant", None, tool_calls=["x", {"id": None}, {"id": ["no", "text"]}]),
    ]
    assert heal(odd) == odd
