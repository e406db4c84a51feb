"""Messages as only their frameworks make them: tool calls, results, reasoning, parts, and what stands beside them.

Each function makes examples by name: the messages of one call of the store. A framework's modules are passed in by the
shape, which imports them only for a store that derives from that framework.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def openai_items() -> dict[str, list[Any]]:
    """Make items of OpenAI's Responses API, as the Agents SDK stores them in a session."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look_up", "arguments": '{"order": 7}'}
    unusual = ('{"order":7,  "a":1.0}', '{"order":')  # not as json.dumps writes it, and cut off
    annotation = {"type": "url_citation", "url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}
    words = {"type": "output_text", "text": "It is.", "annotations": [annotation]}
    summary = {"type": "summary_text", "text": "look first"}
    picture = [
        {"type": "input_text", "text": "what is this?"},
        {"type": "input_image", "image_url": PICTURE, "detail": "low"},
    ]
    return {
        "a function call and its output": [
            {**call, "status": "completed"},
            {"type": "function_call_output", "call_id": "call_1", "output": "on its way"},
        ],
        "function calls with unusual arguments": [
            {**call, "call_id": f"call_{number}", "arguments": text} for number, text in enumerate(unusual, 2)
        ],
        "reasoning": [{"type": "reasoning", "id": "rs_1", "summary": [summary], "encrypted_content": "gAAA"}],
        "an answer of the model": [
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [words]}
        ],
        "a question with a picture": [{"role": "user", "content": picture}],
    }


def langchain_messages(langchain: Any) -> dict[str, list[Any]]:
    """Make messages of LangChain (its module `langchain_core.messages`)."""
    call = {"name": "look_up", "args": {"order": 7}, "id": "call-1", "type": "tool_call"}
    invalid = {"name": "look_up", "args": "{", "id": "call-2", "error": "no JSON", "type": "invalid_tool_call"}
    asks = langchain.AIMessage(
        content="",
        id="run-1",
        name="agent",
        tool_calls=[call],
        invalid_tool_calls=[invalid],
        additional_kwargs={"reasoning_content": "look first"},
        response_metadata={"model_name": "m", "finish_reason": "tool_calls"},
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    )
    failed = {"tool_call_id": "call-1", "name": "look_up", "id": "t-1", "status": "error", "artifact": {"rows": [1]}}
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    return {
        "a message with tool calls": [asks],
        "a tool call and its failure": [asks, langchain.ToolMessage(content="no such order", **failed)],
        "a question with a picture": [langchain.HumanMessage(content=parts, name="ada", id="h-1")],
    }


def llama_index_messages(llama: Any) -> dict[str, list[Any]]:
    """Make messages of LlamaIndex (its module `llama_index.core.base.llms.types`)."""
    call = {"id": "call-1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": 7}'}}
    of_call = {"tool_call_id": "call-1", "name": "look_up"}
    blocks = [
        llama.TextBlock(text="what is this?"),
        llama.ImageBlock(url="https://example.com/a.png", detail="low"),
        llama.TextBlock(text="and where?"),
    ]
    return {
        "a message with a tool call": [
            llama.ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})
        ],
        "a tool's result": [llama.ChatMessage(role="tool", content="on its way", additional_kwargs=of_call)],
        "a question with a picture": [llama.ChatMessage(role="user", blocks=blocks)],
    }


def adk_events(events: Any, types: Any) -> dict[str, list[Any]]:
    """Make events of Google's ADK (`google.adk.events` and `google.genai.types`)."""
    call = types.FunctionCall(id="fc-1", name="look_up", args={"order": 7, "deep": [None, 1.5]})
    result = types.FunctionResponse(id="fc-1", name="look_up", response={"state": "on its way"})
    picture = types.Blob(data=b"\x89PNG\x00\xff", mime_type="image/png")

    def event(author: str, role: str, *parts: Any, **fields: Any) -> list[Any]:
        content = types.Content(role=role, parts=list(parts))
        return [events.Event(author=author, invocation_id="inv-1", content=content, **fields)]

    return {
        "a function call": event("model", "model", types.Part(function_call=call), long_running_tool_ids={"fc-1"}),
        "a function's response": event("model", "user", types.Part(function_response=result)),
        "a thought": event("model", "model", types.Part(text="look first", thought=True), types.Part(text="hello")),
        "a question with a picture": event("user", "user", types.Part(text="?"), types.Part(inline_data=picture)),
        "an event with actions": event(
            *("model", "model", types.Part(text="over to b")),
            actions=events.EventActions(transfer_to_agent="b", artifact_delta={"a.txt": 1}),
            branch="root.a",
            custom_metadata={"score": 0.5},
        ),
        "an error": [
            events.Event(author="model", invocation_id="inv-1", error_code="429", error_message="too many requests")
        ],
    }


def agent_framework_messages(framework: Any) -> dict[str, list[Any]]:
    """Make messages of Microsoft's Agent Framework."""
    call = framework.Content.from_function_call(call_id="call-1", name="look_up", arguments={"order": 7})
    result = framework.Content.from_function_result(call_id="call-1", result="on its way")
    fields = {"author_name": "agent", "message_id": "m-1", "additional_properties": {"score": 0.5}}
    picture = framework.Content.from_uri(uri="https://example.com/a.png", media_type="image/png")
    return {
        "a function call and its result": [
            framework.Message("assistant", [call], **fields),
            framework.Message("tool", [result]),
        ],
        "a question with a picture": [framework.Message("user", ["what is this?", picture])],
    }


def strands_messages() -> dict[str, list[Any]]:
    """Make messages of Strands, which are dicts."""
    use = {"toolUseId": "t-1", "name": "look_up", "input": {"order": 7}}
    result = {"toolUseId": "t-1", "status": "error", "content": [{"text": "no such order"}, {"json": {"code": 404}}]}
    thought = {"reasoningContent": {"reasoningText": {"text": "look first", "signature": "c2ln"}}}
    return {
        "a tool use": [{"role": "assistant", "content": [thought, {"text": "let me see"}, {"toolUse": use}]}],
        "a tool's result": [{"role": "user", "content": [{"toolResult": result}]}],
    }


def plain(value: Any) -> Any:
    """Convert a framework's object to mappings, lists and values, to be compared in another process."""
    if callable(dump := getattr(value, "model_dump", None)):
        return plain(dump(mode="json"))
    if callable(convert := getattr(value, "to_dict", None)):
        return plain(convert())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(name): plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float | bool | bytes | None) else str(value)
