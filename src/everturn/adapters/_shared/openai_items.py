"""OpenAI's input items as messages, and back. Every item comes back equal. Pure; imports no framework.

Role, content and tool calls are stored in the message's own fields, for people and other frameworks. Fields that these
do not imply are stored in `metadata["openai"]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from everturn import ChatMessage

OWN = "openai"  # key in a message's metadata
FAKE_ID = "__fake_id__"  # given by the SDK to every item of a model that has no ids
LONGEST_ROLE = 64

Item: TypeAlias = Mapping[str, Any]


def to_message(item: Item) -> ChatMessage:
    """Return an item as a message. `to_item` returns an equal item."""
    role: Any = item.get("role")
    content: Any = item.get("content")
    if len(item) == 2 and type(role) is type(content) is str and _is_role(role):
        return ChatMessage(role, content)  # fast path for most messages
    kind = item.get("type")
    if kind == "function_call" and isinstance(item.get("call_id"), str):
        message = _call(item)
    elif kind == "function_call_output" and isinstance(item.get("call_id"), str) and _is_content(item.get("output")):
        message = ChatMessage("tool", item["output"], tool_call_id=item["call_id"], id=_text(item.get("id")))
    elif (kind is None or kind == "message") and _is_role(role) and _is_content(content):
        message = ChatMessage(role, content, id=_text(item.get("id")))
    else:  # reasoning, a search, ...: stored whole; its type is the role
        role = kind if isinstance(kind, str) and _is_role(kind) else "item"
        return ChatMessage(role, _told(item), id=_text(item.get("id")), metadata={OWN: {"item": dict(item)}})
    implied = _implied(message)
    more = {name: value for name, value in item.items() if name not in implied or not _same(implied[name], value)}
    without = [name for name in implied if name not in item]
    own = ({"fields": more} if more else {}) | ({"without": without} if without else {})
    return replace(message, metadata={OWN: own}) if own else message


def to_item(message: ChatMessage) -> dict[str, Any]:
    """Return the item of a message, whichever framework wrote it."""
    own = message.metadata.get(OWN)
    if not isinstance(own, dict):
        return _implied(message)
    if isinstance(own.get("item"), dict):
        return dict(own["item"])
    item = _implied(message) | own.get("fields", {})
    return {name: value for name, value in item.items() if name not in own.get("without", ())}


def identity(item: Item) -> str | None:
    """Return the unique id of an item; None if it has none, or only the SDK's placeholder."""
    own = item.get("id")
    return own if isinstance(own, str) and own and own != FAKE_ID else None


def _call(item: Item) -> ChatMessage:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item["call_id"], "type": "function", "function": function}
    return ChatMessage("assistant", None, tool_calls=[call], id=_text(item.get("id")))


def _implied(message: ChatMessage) -> dict[str, Any]:
    """Build an item from a message's own fields. Of several tool calls it has the first; `to_items` has all."""
    item: dict[str, Any] = {}
    if message.role == "tool" and message.tool_call_id is not None:
        item = {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
    elif message.tool_calls and message.content is None:
        item = _called(message.tool_calls[0])
    else:
        item = {"role": message.role, "content": "" if message.content is None else message.content}
    if message.id is not None:
        item["id"] = message.id
    return item


def _called(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    named = function if isinstance(function, dict) else call if isinstance(call, dict) else {}
    identity = call.get("id", call.get("call_id")) if isinstance(call, dict) else None
    return {
        "type": "function_call",
        "call_id": identity,
        "name": named.get("name"),
        "arguments": named.get("arguments", "{}"),
    }


def all_items(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Return the items of a history, in order."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.metadata or message.tool_calls or message.tool_call_id is not None or message.content is None:
            items += to_items(message)
        else:  # fast path for most messages
            item: dict[str, Any] = {"role": message.role, "content": message.content}
            if message.id is not None:
                item["id"] = message.id
            items.append(item)
    return items


def to_items(message: ChatMessage) -> list[dict[str, Any]]:
    """Return the items of one message. Another framework's may be several: its text, then each tool call."""
    if OWN in message.metadata or not message.tool_calls:
        return [to_item(message)]
    if message.content is None and len(message.tool_calls) == 1:
        return [to_item(message)]
    said = [{"role": message.role, "content": message.content}] if message.content else []
    return said + [_called(call) for call in message.tool_calls]


def _told(item: Item) -> str:
    """Return the readable text of an item that is no message: of its summary or content."""
    parts = item.get("summary") or item.get("content") or ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _is_content(content: Any) -> bool:
    return isinstance(content, str | list)


def _is_role(role: Any) -> bool:
    return isinstance(role, str) and 0 < len(role) <= LONGEST_ROLE


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal and of the same types: 1 differs from True and 1.0. Key order is ignored."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
