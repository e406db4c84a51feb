"""Pydantic AI's messages as entries, and back. Every message comes back equal. Pure.

One message of Pydantic AI becomes one or several of everturn's. Role, text, tool calls and results are stored in their
own fields, for people and other frameworks. Anything that these do not imply is stored in `metadata["pydantic_ai"]`. A
message without any of these is a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import ModelMessagesTypeAdapter

from everturn import ChatMessage, Record
from everturn.adapters._shared.finite import refuse_non_finite
from everturn.model import Entry

OWN = "pydantic_ai"  # key in a message's metadata
MESSAGE = "pydantic_ai.message"  # kind of the record of a message without text, calls or results
OF = "of"  # in the metadata of the later messages of one entry: its id
JSON = "json"  # indexes of parts whose value was no text, and is stored as JSON text

Fields: TypeAlias = dict[str, Any]
"""Fields of a message, or of a part of one, as JSON."""

encode = msgspec.json.encode

_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool"}
_RETRIES = {"retry-prompt", "retry-feedback"}


class StoredEntry(msgspec.Struct, frozen=True):
    """One of Pydantic AI's entries in a session. `last`: the seq of its last message."""

    entry: ConversationEntry
    last: int


# --- a message as entries --------------------------------------------------------------------------------------------


def to_entries(entry: ConversationEntry) -> list[Entry]:
    """Return one of Pydantic AI's entries as everturn's. `to_stored` returns what Pydantic AI's own JSON would.

    Raises InvalidInput for NaN and infinity, which JSON does not have.
    """
    refuse_non_finite(entry.message, "message")
    for part in entry.message.parts:
        refuse_non_finite(part, f"message.{part.part_kind}")
    (fields,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json", exclude_none=True)
    if "usage" in fields:
        fields["usage"] = {name: value for name, value in fields["usage"].items() if value}
    parts: list[Fields] = fields["parts"]
    told = _request(parts) if fields["kind"] == "request" else _response(parts)
    if not told.messages:
        return [Record(MESSAGE, {"id": entry.id, "message": fields})]
    if told.as_json:
        fields[JSON] = told.as_json
    first, *more = told.messages
    return [
        msgspec.structs.replace(first, id=entry.id, metadata={OWN: fields}),
        *(msgspec.structs.replace(message, metadata={OWN: {OF: entry.id}}) for message in more),
    ]


class _PartsAsMessages(msgspec.Struct):
    """Messages made of parts, and the indexes of parts stored as JSON text. Moved values are removed from the parts."""

    messages: list[ChatMessage]
    as_json: list[int]


def _request(parts: list[Fields]) -> _PartsAsMessages:
    """Return each part of a request that has a role as a message of its own."""
    told = _PartsAsMessages([], [])
    for index, part in enumerate(parts):
        role = _role(part)
        if role is None:
            continue
        content = part.get("content")
        said: Any = content
        if isinstance(content, str):
            del part["content"]
        elif role == "tool":
            said = encode(content).decode()  # `null` where there is none
            told.as_json.append(index)
            part.pop("content", None)
        else:
            said = [_mentioned(item) for item in content] if isinstance(content, list) else ""
        call = part.get("tool_call_id") if role == "tool" else None
        told.messages.append(ChatMessage(role, said, name=part.get("tool_name"), tool_call_id=call))
    return told


def _role(part: Fields) -> str | None:
    """Return the role of a part of a request; None if it has none."""
    if part["part_kind"] in _RETRIES:
        return "tool" if part.get("tool_name") else "user"
    return _ROLES.get(part["part_kind"])


def _response(parts: list[Fields]) -> _PartsAsMessages:
    """Return the text and the tool calls of a response as one message."""
    told = _PartsAsMessages([], [])
    texts = [part for part in parts if part["part_kind"] == "text"]
    calls: list[Fields] = []
    for index, part in enumerate(parts):
        if part["part_kind"] == "tool-call":
            arguments = part.pop("args", None)
            if not isinstance(arguments, str):
                told.as_json.append(index)
                arguments = encode(arguments).decode()  # `null` where there are none
            function = {"name": part.pop("tool_name"), "arguments": arguments}
            calls.append({"id": part.pop("tool_call_id"), "type": "function", "function": function})
    if texts or calls:
        content = "".join(part["content"] for part in texts) if texts or not calls else None
        told.messages.append(ChatMessage("assistant", content, tool_calls=calls or None))
        if len(texts) == 1:
            del texts[0]["content"]
    return told


def _mentioned(item: Any) -> Fields:
    """Return an item of a user prompt without its bytes."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    known = item if isinstance(item, dict) else {}
    if known.get("kind") == "text-content":
        return {"type": "text", "text": known.get("content", "")}
    return {"type": known.get("kind", "part")} | {name: known[name] for name in ("url", "media_type") if name in known}


# --- entries as messages ---------------------------------------------------------------------------------------------


def to_stored(entries: Iterable[Entry], *, parent: str | None = None) -> list[StoredEntry]:
    """Return the entries as Pydantic AI's, whichever framework wrote them. Each has the one before as parent.

    `parent`: the parent of the first. Messages of an entry whose first message is not among them are left out.
    """
    groups: list[list[ChatMessage | Record]] = []
    for entry in entries:
        if isinstance(entry, Record):
            if entry.kind == MESSAGE:
                groups.append([entry])
        elif isinstance(entry, ChatMessage):
            own = entry.metadata.get(OWN)
            if not isinstance(own, dict) or OF not in own:
                groups.append([entry])
            elif groups and _id(groups[-1][0]) == own[OF]:
                groups[-1].append(entry)
    messages = ModelMessagesTypeAdapter.validate_json(encode([_message(group) for group in groups]))
    stored: list[StoredEntry] = []
    for group, message in zip(groups, messages, strict=True):
        found = ConversationEntry(id=_id(group[0]), parent_id=parent, message=message)
        stored.append(StoredEntry(found, group[-1].seq or 0))
        parent = found.id
    return stored


def _id(first: ChatMessage | Record) -> str:
    if isinstance(first, Record):
        return str(first.body["id"])
    return first.id if first.id is not None else f"everturn-{first.seq}"


def _message(group: list[ChatMessage | Record]) -> Fields:
    """Return the message of a group of entries, as JSON."""
    first = group[0]
    if isinstance(first, Record):
        message: Fields = first.body["message"]
        return message
    said = [message for message in group if isinstance(message, ChatMessage)]
    own = first.metadata.get(OWN)
    if not isinstance(own, dict):
        return _foreign(first)
    fields = {name: value for name, value in own.items() if name != JSON}
    parts = [dict(part) for part in fields["parts"]]
    (_fill_request if fields["kind"] == "request" else _fill_response)(parts, said, set(own.get(JSON, ())))
    return fields | {"parts": parts}


def _fill_request(parts: list[Fields], said: list[ChatMessage], as_json: set[int]) -> None:
    telling = iter(said)
    for index, part in enumerate(parts):
        if _role(part) is None:
            continue
        message = next(telling)
        if index in as_json:
            part["content"] = msgspec.json.decode(message.text)
        elif "content" not in part and isinstance(message.content, str):
            part["content"] = message.content


def _fill_response(parts: list[Fields], said: list[ChatMessage], as_json: set[int]) -> None:
    (message,) = said
    calls: Iterator[Any] = iter(message.tool_calls or ())
    for index, part in enumerate(parts):
        if part["part_kind"] == "text" and "content" not in part:
            part["content"] = message.text
        elif part["part_kind"] == "tool-call":
            call = next(calls)
            part["tool_name"], part["tool_call_id"] = call["function"]["name"], call["id"]
            arguments = call["function"]["arguments"]
            part["args"] = msgspec.json.decode(arguments) if index in as_json else arguments


def _foreign(message: ChatMessage) -> Fields:
    """Return a message that was not written by Pydantic AI, as its JSON."""
    time = datetime.fromtimestamp(message.created_at or 0.0, UTC).isoformat()
    part: Fields = {"content": message.text, "timestamp": time}
    if message.role == "tool":
        name = message.name or "tool"
        part |= {"part_kind": "tool-return", "tool_name": name, "tool_call_id": message.tool_call_id or ""}
    elif message.role == "user":
        part["part_kind"] = "user-prompt"
    elif message.role in {"system", "developer"}:
        part["part_kind"] = "system-prompt"
    else:
        kind = "thinking" if message.role == "reasoning" else "text"
        parts = [{"part_kind": kind, "content": message.text}] if message.text else []
        return {"kind": "response", "timestamp": time, "parts": parts + [_call(c) for c in message.tool_calls or ()]}
    return {"kind": "request", "timestamp": time, "parts": [part]}


def _call(call: Any) -> Fields:
    """Return a tool call as a part, from any common form."""
    known = call if isinstance(call, dict) else {}
    inner = known.get("function")
    function = inner if isinstance(inner, dict) else known
    arguments = function.get("arguments", function.get("args"))
    if not isinstance(arguments, str | dict):
        arguments = encode(arguments).decode()
    identity = known.get("id") or known.get("call_id") or "call"
    return {
        "part_kind": "tool-call",
        "tool_name": str(function.get("name") or ""),
        "args": arguments,
        "tool_call_id": str(identity),
    }
