"""Events as entries: every event comes back equal, and reads well to whoever does not know ADK."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events.event import NodeInfo
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai.types import Content, FunctionCall, FunctionResponse, GroundingMetadata, Part
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import ChatMessage, InvalidInput, Record
from everturn.adapters.google_adk.events import to_entries, to_events
from tests.adapters.google_adk.stories import CONVERSATION, say
from tests.tiers import examples

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
OBJECT = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
SHORT = st.text(max_size=6)
MAYBE = st.none() | SHORT

PART = st.one_of(
    st.builds(Part, text=SHORT),
    st.builds(
        Part,
        text=SHORT | st.just('{"a":1}'),
        thought=st.none() | st.booleans(),
        thought_signature=st.none() | st.binary(max_size=3),
    ),
    st.builds(Part, function_call=st.builds(FunctionCall, id=MAYBE, name=MAYBE, args=st.none() | OBJECT)),
    st.builds(
        Part,
        function_response=st.builds(
            FunctionResponse,
            id=MAYBE,
            name=MAYBE,
            response=st.none()
            | OBJECT
            | st.builds(lambda text: {"result": text}, SHORT | st.sampled_from(["{}", '{"a":1}', "null"])),
        ),
    ),
)
EVENT = st.builds(
    Event,
    author=st.sampled_from(["user", "agent", "", "tool", "assistant"]),
    invocation_id=SHORT,
    id=st.uuids().map(str),
    timestamp=st.floats(0, 2e9),
    content=st.none()
    | st.builds(
        Content, role=st.sampled_from([None, "user", "model", "x"]), parts=st.none() | st.lists(PART, max_size=4)
    ),
    branch=MAYBE,
    turn_complete=st.none() | st.booleans(),
    error_code=MAYBE,
    finish_reason=st.none() | st.just("STOP"),
    custom_metadata=st.none() | OBJECT,
    output=JSON,
    node_info=st.builds(NodeInfo, path=SHORT, output_for=st.none() | st.lists(SHORT, max_size=2)),
    long_running_tool_ids=st.none() | st.sets(SHORT, max_size=2),
    actions=st.builds(
        EventActions,
        escalate=st.none() | st.booleans(),
        artifact_delta=st.dictionaries(SHORT, st.integers(0, 9), max_size=2),
        agent_state=st.none() | OBJECT,
        route=st.none() | st.booleans() | st.integers(0, 3) | SHORT | st.lists(SHORT, max_size=2),
    ),
)


def strictly(event: Event) -> Any:
    """The event as ADK writes it, where 1, 1.0 and True differ."""
    return event.model_dump_json(exclude={"timestamp"}), event.timestamp


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(EVENT, max_size=3))
def test_any_events_come_back_equal(events: list[Event]) -> None:
    entries = [entry for event in events for entry in to_entries(event)]
    back = to_events(entries)
    assert back == events
    assert [strictly(event) for event in back] == [strictly(event) for event in events]
    assert all(
        type(vars(one).get(name)) is type(value)
        for one, event in zip(back, events, strict=True)
        for name, value in vars(event).items()
    )


def test_what_comes_back_is_what_adk_itself_would_read() -> None:
    """Models are made without being checked: they have to be what checking makes of them."""
    for event in CONVERSATION:
        (back,) = to_events(to_entries(event))
        assert back == event == Event.model_validate_json(event.model_dump_json())
        assert back.model_dump_json(exclude_none=True) == event.model_dump_json(exclude_none=True)
        assert back.get_function_calls() == event.get_function_calls()
        assert back.is_final_response() == event.is_final_response()


def test_no_two_events_that_come_back_share_anything() -> None:
    one, two = to_events([*to_entries(say("a")), *to_entries(say("b"))])
    one.actions.state_delta["x"] = 1
    one.actions.artifact_delta["x"] = 1
    one.node_info.path = "x"
    assert (two.actions.state_delta, two.actions.artifact_delta, two.node_info.path) == ({}, {}, "")


def test_the_rest_of_an_event_is_kept() -> None:
    event = say(
        "x",
        author="a",
        grounding_metadata=GroundingMetadata(web_search_queries=["q"]),
        isolation_scope="s",
        avg_logprobs=-0.5,
    )
    event.actions.requested_tool_confirmations = {"c": ToolConfirmation(hint="sure?", confirmed=False)}
    (back,) = to_events(to_entries(event))
    assert back == event
    assert isinstance(back.actions.requested_tool_confirmations["c"], ToolConfirmation)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"custom_metadata": {"x": [float("nan")]}}, r"event.custom_metadata\['x'\]\[0\]"),
        ({"output": float("inf")}, "event.output"),
        ({"avg_logprobs": float("-inf")}, "event.avg_logprobs"),
        ({"actions": EventActions(agent_state={"x": float("nan")})}, r"event.actions.agent_state"),
    ],
)
def test_a_number_that_json_has_not_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput, match=path):
        to_entries(Event(author="a", **fields))
    part = Part(function_call=FunctionCall(name="f", args={"x": float("nan")}))
    with pytest.raises(InvalidInput, match=r"event.content.args"):
        to_entries(Event(author="a", content=Content(role="model", parts=[part])))


def test_events_read_well() -> None:
    entries = [entry for event in CONVERSATION for entry in to_entries(event)]
    messages = [entry for entry in entries if isinstance(entry, ChatMessage)]
    assert [(message.role, message.name, message.text) for message in messages] == [
        ("user", None, "Where are orders 1 and 2?"),
        ("assistant", "orders", "Let me look."),
        ("tool", "track", "in Bern"),
        ("tool", "track", '{"at":"sea","days":3}'),
        ("assistant", "orders", "One is in Bern, one at sea."),
        ("user", None, "This one:"),
    ]
    calls = messages[1].tool_calls or []
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("c1", "track", '{"order":1}'),
        ("c2", "track", '{"order":2.0,"why":null}'),
    ]
    assert [message.tool_call_id for message in messages[2:4]] == ["c1", "c2"]
    assert messages[5].content == [
        {"type": "text", "text": "This one:"},
        {"type": "inline_data", "mime_type": "image/png"},
    ]
    assert [entry.kind for entry in entries if isinstance(entry, Record)] == ["adk.event"]


def test_what_a_message_tells_is_not_stored_twice() -> None:
    (message,) = to_entries(say("hello", author="orders", invocation_id="e-1"))
    assert isinstance(message, ChatMessage)
    assert set(message.metadata["adk"]) == {"invocation_id", "timestamp"}


def test_messages_of_another_framework_are_events() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "track", "arguments": '{"order": 1}'}}
    entries = [
        ChatMessage("user", "Where is it?", seq=1, created_at=5.0),
        ChatMessage("assistant", "Wait.", tool_calls=[call, {"name": "odd"}], seq=2),
        ChatMessage("tool", "in Bern", tool_call_id="c1", name="track", seq=3),
        ChatMessage("system", "Be brief.", id="mine", seq=4),
        ChatMessage("reasoning", "Hm.", seq=5),
    ]
    events = to_events(entries)
    assert [(event.id, event.author) for event in events] == [
        ("everturn-1", "user"),
        ("everturn-2", "assistant"),
        ("everturn-3", "track"),
        ("mine", "system"),
        ("everturn-5", "reasoning"),
    ]
    assert events[0].timestamp == 5.0
    contents = [event.content for event in events if event.content]
    assert [content.role for content in contents] == ["user", "model", "user", "user", "model"]
    assert contents[4].parts == [Part(text="Hm.", thought=True)]
    first, odd = events[1].get_function_calls()
    assert (first.id, first.name, first.args) == ("c1", "track", {"order": 1})
    assert odd.name == "odd"
    (response,) = events[2].get_function_responses()
    assert (response.id, response.response) == ("c1", {"result": "in Bern"})
    assert events == [Event.model_validate_json(event.model_dump_json()) for event in events]


@pytest.mark.parametrize("cut", range(1, 4))
def test_the_end_of_an_event_alone_is_no_event(cut: int) -> None:
    entries = to_entries(CONVERSATION[2])
    assert to_events(entries[cut:]) == []
    assert to_events([*entries[cut:], *to_entries(CONVERSATION[3])]) == [CONVERSATION[3]]
