"""Records of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import InvalidInput, ToolCall
from tests.store.speech import say


def test_a_tool_call_comes_back_with_every_field(store: Any) -> None:
    call = ToolCall("search", {"q": "x"}, "c1", {"hits": [1, 2]}, "partial", 0.25)
    receipt = store.add_tool_call("a", call)
    (found,) = store.get_tool_calls("a")
    assert found == call
    assert (found.seq,) == receipt.seqs


def test_a_tool_call_needs_a_name_and_arguments_only(store: Any) -> None:
    store.add_tool_call("a", ToolCall("f", None))
    (found,) = store.get_tool_calls("a")
    assert (found.call_id, found.result, found.error, found.duration) == (None, None, None, None)


@pytest.mark.parametrize("arguments", [{}, [], "text", 7, 1.5, True, None, {"a": [{"b": None}]}])
def test_arguments_are_any_json(store: Any, arguments: object) -> None:
    store.add_tool_call("a", ToolCall("f", arguments, result=arguments))
    (found,) = store.get_tool_calls("a")
    assert found.arguments == arguments
    assert found.result == arguments
    assert type(found.arguments) is type(arguments)


@pytest.mark.parametrize("duration", [0, 3, 0.1])
def test_a_duration_keeps_its_type(store: Any, duration: float) -> None:
    store.add_tool_call("a", ToolCall("f", {}, duration=duration))
    found = store.get_tool_calls("a")[0].duration
    assert (found, type(found)) == (duration, type(duration))


def test_fields_of_other_versions_are_kept(store: Any) -> None:
    call = ToolCall("f", {}, extra={"cost": 3, "trace": {"id": "t"}})
    store.add_tool_call("a", call)
    assert store.get_tool_calls("a") == [call]


def test_tool_calls_stand_among_the_entries_in_order(store: Any) -> None:
    say(store, "a", "1")
    store.add_tool_call("a", ToolCall("f", 1))
    say(store, "a", "2")
    store.add_tool_call("a", ToolCall("g", 2))
    assert [call.seq for call in store.get_tool_calls("a")] == [2, 4]
    assert [entry.seq for entry in store.state("a").entries] == [1, 2, 3, 4]


def test_a_tool_call_is_no_message(store: Any) -> None:
    store.add_tool_call("a", ToolCall("f", {}))
    assert store.get_history("a") == []


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (ToolCall(7, {}), "tool_call.name"),
        (ToolCall("f", {"x": float("nan")}), "tool_call.arguments.x"),
        (ToolCall("f", {}, call_id=7), "tool_call.call_id"),
        (ToolCall("f", {}, result={1, 2}), "tool_call.result"),
        (ToolCall("f", {}, error=ValueError()), "tool_call.error"),
        (ToolCall("f", {}, duration="long"), "tool_call.duration"),
        (ToolCall("f", {}, duration=float("inf")), "tool_call.duration"),
        (ToolCall("f", {}, duration=True), "tool_call.duration"),
        (ToolCall("f", {}, extra={"x": b""}), "tool_call.extra.x"),
        (ToolCall("f", {}, extra={"name": "g"}), "tool_call.extra.name"),
    ],
)
def test_what_would_not_come_back_is_refused_by_path(one_store: Any, call: ToolCall, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.add_tool_call("a", call)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert one_store.sessions().sessions == ()


def test_only_a_tool_call_is_a_tool_call(one_store: Any) -> None:
    with pytest.raises(InvalidInput, match="tool_call"):
        one_store.add_tool_call("a", {"name": "f", "arguments": {}})
