"""Messages as entries: what comes back is what Pydantic AI's own serialization gives, and reads well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from everturn import ChatMessage, Record
from everturn.adapters.pydantic_ai.messages import to_entries, to_stored
from tests.tiers import examples

CONVERSATION: list[ModelMessage] = [
    ModelRequest(
        parts=[
            SystemPromptPart("Be brief."),
            UserPromptPart("Where are orders 1 and 2?"),
            UserPromptPart(
                ["This one:", ImageUrl("https://example.org/a.png"), BinaryContent(b"\0\xff", media_type="text/plain")]
            ),
        ],
        instructions="Answer in German.",
        metadata={"mine": [1, None]},
    ),
    ModelResponse(
        parts=[
            ThinkingPart("Both, I think.", signature="s"),
            TextPart("Let me look."),
            ToolCallPart("track", {"order": 1, "why": None}, tool_call_id="c1"),
            ToolCallPart("track", '{"order":  2}', tool_call_id="c2"),
            ToolCallPart("now", None, tool_call_id="c3"),
        ],
        usage=RequestUsage(input_tokens=7, details={"cached": 3}),
        model_name="scripted",
        timestamp=datetime(2026, 11, 16, tzinfo=UTC),
        provider_details={"finish": "stop"},
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("track", "in Bern", tool_call_id="c1"),
            ToolReturnPart("track", {"at": "sea", "days": 3}, tool_call_id="c2", metadata={"x": 1}),
            ToolReturnPart("now", None, tool_call_id="c3", outcome="failed"),
        ]
    ),
    ModelResponse(parts=[TextPart("One is in Bern,"), TextPart(" one at sea.")]),
    ModelRequest(parts=[]),
    ModelResponse(parts=[ThinkingPart("only a thought")]),
    ModelResponse(
        parts=[
            NativeToolCallPart("search", {"q": 1}, tool_call_id="n"),
            NativeToolReturnPart("search", [1], tool_call_id="n"),
        ]
    ),
]


def entries_of(messages: list[ModelMessage]) -> list[Any]:
    return [entry for message in messages for entry in to_entries(ConversationEntry(parent_id=None, message=message))]


def read_by_pydantic_ai(messages: list[ModelMessage]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def test_messages_come_back_as_pydantic_ais_own_serialization_gives_them() -> None:
    made = [ConversationEntry(parent_id=None, message=message) for message in CONVERSATION]
    back = [one.entry for one in to_stored([entry for one in made for entry in to_entries(one)])]
    assert [one.message for one in back] == read_by_pydantic_ai(CONVERSATION) == CONVERSATION
    assert ModelMessagesTypeAdapter.dump_json([one.message for one in back]) == ModelMessagesTypeAdapter.dump_json(
        CONVERSATION
    )
    assert [one.id for one in back] == [one.id for one in made]
    assert [one.parent_id for one in back] == [None, *(one.id for one in made[:-1])]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
TEXT = st.text(max_size=6)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
TIME = st.just(datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC))
REQUEST = st.builds(
    ModelRequest,
    parts=st.lists(
        st.builds(SystemPromptPart, TEXT, timestamp=TIME)
        | st.builds(UserPromptPart, TEXT | st.lists(TEXT, max_size=2), timestamp=TIME)
        | st.builds(ToolReturnPart, TEXT, JSON, tool_call_id=TEXT, timestamp=TIME),
        max_size=3,
    ),
    instructions=st.none() | TEXT,
    metadata=st.none() | OBJECT,
)
RESPONSE = st.builds(
    ModelResponse,
    parts=st.lists(
        st.builds(TextPart, TEXT)
        | st.builds(ThinkingPart, TEXT)
        | st.builds(ToolCallPart, TEXT, st.none() | TEXT | OBJECT, tool_call_id=TEXT),
        max_size=4,
    ),
    timestamp=TIME,
    model_name=st.none() | TEXT,
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(REQUEST | RESPONSE, max_size=4))
def test_any_messages_come_back_so(messages: list[ModelMessage]) -> None:
    back = [one.entry.message for one in to_stored(entries_of(messages))]
    assert ModelMessagesTypeAdapter.dump_json(back) == ModelMessagesTypeAdapter.dump_json(read_by_pydantic_ai(messages))


def test_messages_read_well() -> None:
    entries = entries_of(CONVERSATION)
    messages = [entry for entry in entries if isinstance(entry, ChatMessage)]
    assert [(message.role, message.name, message.text) for message in messages] == [
        ("system", None, "Be brief."),
        ("user", None, "Where are orders 1 and 2?"),
        ("user", None, "This one:"),
        ("assistant", None, "Let me look."),
        ("tool", "track", "in Bern"),
        ("tool", "track", '{"at":"sea","days":3}'),
        ("tool", "now", "null"),
        ("assistant", None, "One is in Bern, one at sea."),
    ]
    assert messages[2].content == [
        {"type": "text", "text": "This one:"},
        {"type": "image-url", "url": "https://example.org/a.png", "media_type": "image/png"},
        {"type": "binary", "media_type": "text/plain"},
    ]
    assert [call["function"] for call in messages[3].tool_calls or ()] == [
        {"name": "track", "arguments": '{"order":1,"why":null}'},
        {"name": "track", "arguments": '{"order":  2}'},
        {"name": "now", "arguments": "null"},
    ]
    assert [message.tool_call_id for message in messages[4:7]] == ["c1", "c2", "c3"]
    assert [entry.kind for entry in entries if isinstance(entry, Record)] == ["pydantic_ai.message"] * 3


def test_what_a_message_tells_is_not_stored_twice() -> None:
    (said,) = entries_of([ModelResponse(parts=[TextPart("hello"), ToolCallPart("f", {"a": "b"}, tool_call_id="c")])])
    assert said.metadata["pydantic_ai"]["parts"] == [{"part_kind": "text"}, {"part_kind": "tool-call"}]


def test_messages_of_another_framework_are_messages() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "track", "arguments": '{"order": 1}'}}
    stored = to_stored(
        [
            ChatMessage("system", "Be brief.", seq=1, created_at=5.0),
            ChatMessage("user", "Where is it?", id="mine", seq=2),
            ChatMessage("assistant", "Wait.", tool_calls=[call, {"name": "odd"}], seq=3),
            ChatMessage("tool", "in Bern", tool_call_id="c1", name="track", seq=4),
            ChatMessage("reasoning", "Hm.", seq=5),
            ChatMessage("web_search_call", "", seq=6),
            ChatMessage("web_search_call", "Bern", seq=7),
        ]
    )
    assert [one.entry.id for one in stored] == [
        "everturn-1",
        "mine",
        "everturn-3",
        "everturn-4",
        "everturn-5",
        "everturn-6",
        "everturn-7",
    ]
    assert [one.last for one in stored] == [1, 2, 3, 4, 5, 6, 7]
    assert list(stored[5].entry.message.parts) == []  # it says nothing: docs/adapters/README.md
    parts = [part for one in stored for part in one.entry.message.parts]
    assert [type(part) for part in parts] == [
        SystemPromptPart,
        UserPromptPart,
        TextPart,
        ToolCallPart,
        ToolCallPart,
        ToolReturnPart,
        ThinkingPart,
        TextPart,
    ]
    first, odd, answered, *_ = parts[3:]
    assert isinstance(first, ToolCallPart)
    assert isinstance(odd, ToolCallPart)
    assert isinstance(answered, ToolReturnPart)
    assert first.args_as_dict() == {"order": 1}
    assert odd.tool_name == "odd"
    assert (answered.content, answered.tool_call_id) == ("in Bern", "c1")


def test_the_end_of_a_message_alone_is_no_message() -> None:
    assert to_stored(to_entries(ConversationEntry(parent_id=None, message=CONVERSATION[0]))[1:]) == []
