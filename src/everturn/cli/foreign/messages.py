"""What the messages in other stores' files are as ours. Pure, and without their frameworks.

The result is what our adapters write, so that a conversation that was brought in goes on under its framework.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everturn.adapters._shared.openai_items import to_message
from everturn.model import ChatMessage

ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
CLASSES = {
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "function",
}
# What each field is when nothing was said: only what differs is kept.
DEFAULTS: dict[str, Any] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "invalid_tool_calls": [],
    "usage_metadata": None,
    "artifact": None,
    "status": "success",
    "example": False,
}
SEEN = {"content", "name", "id", "tool_calls", "tool_call_id", "type", "role"}  # they stand in the message itself


def from_openai(item: Any) -> ChatMessage:
    """An item of the OpenAI Agents SDK."""
    if not isinstance(item, dict):
        raise TypeError("it is not an item")
    return to_message(item)


def from_langchain(stored: Any) -> ChatMessage:
    """A message as LangChain's message_to_dict writes it."""
    kind, fields = stored["type"], stored["data"]
    role = ROLES.get(kind) or CLASSES.get(kind) or fields["role"]
    own = {name: value for name, value in fields.items() if name not in SEEN and value != DEFAULTS.get(name, object())}
    if kind in CLASSES:
        own = {"class": kind} | own
    elif kind not in ROLES:
        own = {"class": "ChatMessageChunk" if kind.endswith("Chunk") else "ChatMessage"} | own
    calls = [_call(call) for call in fields.get("tool_calls") or ()]
    return ChatMessage(
        role,
        fields["content"],
        name=fields.get("name"),
        tool_calls=calls or None,
        tool_call_id=fields.get("tool_call_id"),
        id=fields.get("id"),
        metadata={"langchain": own} if own else {},
    )


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = msgspec.json.encode(call["args"]).decode()
    return {"id": call.get("id"), "type": "function", "function": {"name": call["name"], "arguments": arguments}}
