"""LangChain's messages as entries, and back. Every class and every field comes back equal.

Role, content, name and tool calls are stored in the entry's own fields, for people and other frameworks. Fields that
only LangChain has are stored in `metadata["langchain"]`, if they differ from what the other fields imply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

from langchain_core import messages as langchain
from langchain_core.messages import BaseMessage
from msgspec.structs import replace

from everturn import ChatMessage
from everturn.adapters._shared.pydantic_models import build_model
from everturn.adapters._shared.values import RoundTripError, equal, is_json, place_of

OWN = "langchain"  # key in an entry's metadata

LONGEST_ROLE = 64  # characters, in an entry

ROLES: Mapping[str, type[BaseMessage]] = {
    "user": langchain.HumanMessage,
    "assistant": langchain.AIMessage,
    "system": langchain.SystemMessage,
    "tool": langchain.ToolMessage,
    "function": langchain.FunctionMessage,
    "remove": langchain.RemoveMessage,
}
_REASONING = "reasoning"  # the role of OpenAI's items of this kind
_ALIASES = {"human": "user", "ai": "assistant", "developer": "system", _REASONING: "assistant"}
_OTHERS: dict[str, tuple[type[BaseMessage], str]] = {
    name: (getattr(langchain, name), role)
    for name, role in {
        "ChatMessage": "",  # it has a role of its own
        "ChatMessageChunk": "",
        "HumanMessageChunk": "user",
        "AIMessageChunk": "assistant",
        "SystemMessageChunk": "system",
        "ToolMessageChunk": "tool",
        "FunctionMessageChunk": "function",
    }.items()
}
_ROLE_OF: dict[type[BaseMessage], str] = {kind: role for role, kind in ROLES.items()} | dict(_OTHERS.values())
_NAME_OF = {kind: name for name, (kind, _) in _OTHERS.items()}

Fields: TypeAlias = dict[str, Any]
"""Fields of a LangChain message by name. They are compared with and copied from; callers never get them."""

Encode: TypeAlias = Callable[[Any], Any]
"""Returns a value as JSON. Raises RoundTripError if it would not come back equal."""

Decode: TypeAlias = Callable[[Any], Any]


def is_known(message: object) -> bool:
    """Whether a message is of one of LangChain's own classes and has only the fields of that class."""
    return (
        type(message) in _ROLE_OF
        and not message.__pydantic_extra__  # type: ignore[attr-defined]  # the table holds pydantic models alone
        and not message.__pydantic_private__  # type: ignore[attr-defined]
    )


def without_extra(message: BaseMessage) -> BaseMessage | None:
    """Return the message without its extra fields, if its class is one of LangChain's own; else None."""
    if type(message) not in _ROLE_OF or message.__pydantic_private__:
        return None
    fields = {name: value for name, value in vars(message).items() if name in type(message).model_fields}
    return build_model(type(message), fields, {})


def with_extra(message: BaseMessage, extra: Fields) -> BaseMessage:
    """Add fields that its class does not have to a message, in place, and return it."""
    object.__setattr__(message, "__pydantic_extra__", extra)
    message.__pydantic_fields_set__.update(extra)
    return message


def to_entry(message: BaseMessage, encode: Encode, *, names_itself: bool = False) -> ChatMessage:
    """Return a message as an entry. `from_entry` returns an equal message, if `decode` is the inverse of `encode`.

    `names_itself`: the reader gives an id to messages without one (`unnamed` of `from_entry`), so store that this
    message has none.
    """
    kind = type(message)
    fields = dict(vars(message))  # a copy: a running graph may add an id meanwhile
    names_itself = names_itself and fields["id"] is None
    if kind in _SIMPLE and not names_itself and (entry := _simple_entry(message, kind, fields)) is not None:
        return entry
    if not is_known(message):
        role = next((role for role, known in ROLES.items() if isinstance(message, known)), "other")
        return ChatMessage(role, str(message.text), id=_text(message.id), metadata={OWN: {"whole": encode(message)}})
    content = fields["content"]
    calls = fields.get("tool_calls") or None
    entry = ChatMessage(
        role=_ROLE_OF[kind] or (fields["role"] if 0 < len(fields["role"]) <= LONGEST_ROLE else "other"),
        content=content if _is_content(content) else str(message.text),
        name=_text(fields["name"]),
        tool_calls=None if calls is None else [_openai_call(call) for call in calls],
        tool_call_id=_text(fields.get("tool_call_id")),
        id=_text(fields["id"]),
    )
    own: Fields = {"class": _NAME_OF[kind]} if kind in _NAME_OF else {}
    if names_itself:
        own["id"] = None
    implied = _implied(kind, entry)
    for name, value in fields.items():
        if not equal(implied.get(name, _NOTHING), value):
            try:
                own[name] = encode(value)
            except RoundTripError as exc:
                raise RoundTripError(str(exc), path=f"{name}{place_of(value, encode)}") from exc
    return replace(entry, metadata={OWN: own}) if own else entry


def from_entry(entry: ChatMessage, decode: Decode, *, unnamed: str | None = None) -> tuple[type[BaseMessage], Fields]:
    """Return class and fields of an entry's message, whichever framework wrote it. For entries without a `whole`.

    `unnamed`: the id for a message without one, unless the entry says that it must have none.
    """
    own = entry.metadata.get(OWN)
    if not isinstance(own, dict):
        kind = ROLES.get(_ALIASES.get(entry.role, entry.role), langchain.ChatMessage)
        return kind, _implied(kind, entry, unnamed)
    kind = _OTHERS[own["class"]][0] if "class" in own else ROLES[entry.role]
    fields = _implied(kind, entry, unnamed)
    fields.update((name, decode(value)) for name, value in own.items() if name != "class")
    return kind, fields


def name_at(seq: int) -> str:
    """Return the id that a graph sees for a message without one at this seq."""
    return f"everturn-{seq}"


def named(entry: ChatMessage, seq: int) -> ChatMessage:
    """Return the entry with the id that a graph sees for it, to be written again at another seq."""
    own = entry.metadata.get(OWN)
    if entry.id is not None or (isinstance(own, dict) and ("id" in own or "whole" in own)):
        return entry
    return replace(entry, id=name_at(seq))


def whole(entry: ChatMessage) -> Any:
    """Return the encoded message of a class that is not LangChain's own; None for LangChain's own."""
    own = entry.metadata.get(OWN)
    return own.get("whole") if isinstance(own, dict) else None


class MessageTemplate(NamedTuple):
    """Builds messages of one class from fields without validation, and says which fields must be copied."""

    kind: type[BaseMessage]
    names: set[str]  # of all fields
    empty: tuple[tuple[str, type], ...]  # fields that are an empty dict or list
    mutable: tuple[str, ...] = ()  # others that are not just text

    @classmethod
    def of(cls, kind: type[BaseMessage], fields: Fields) -> MessageTemplate:
        """Make the template for messages with these fields."""
        made = [(name, type(value)) for name, value in fields.items() if value is not None and type(value) is not str]
        empty = tuple([(name, kind) for name, kind in made if kind in (dict, list) and not fields[name]])
        return cls(kind, set(fields), empty, tuple([name for name, kind in made if (name, kind) not in empty]))

    def build(self, fields: Fields) -> BaseMessage:
        """Build a message with these fields. The dict becomes the message's own; mutable values are copied."""
        for name, make in self.empty:
            fields[name] = make()
        for name in self.mutable:
            fields[name] = _copy(fields[name])
        return build_model(self.kind, fields, {}, self.names.copy())


# --- the simple case -------------------------------------------------------------------------------------------------

# Most messages are plain text. This path reads and writes 1,000 of them in a third of the time.
_SIMPLE: Mapping[type[BaseMessage], str] = {
    kind: role for role, kind in ROLES.items() if role in ("user", "assistant", "system")
}
_templates: dict[str, MessageTemplate] = {}


def plain_text_fields(entry: ChatMessage) -> tuple[MessageTemplate, Fields] | None:
    """Return template and fields for an entry that is plain text; None for any other, which `from_entry` reads."""
    if entry.metadata or type(entry.content) is not str or entry.tool_calls or entry.tool_call_id is not None:
        return None
    template = _templates.get(entry.role) or _template(entry.role)
    if template is None:
        return None
    fields = _defaults[template.kind].copy()
    fields["content"], fields["name"], fields["id"] = entry.content, entry.name, entry.id
    return template, fields


def _template(role: str) -> MessageTemplate | None:
    kind = ROLES.get(_ALIASES.get(role, role))
    if kind is None or kind not in _SIMPLE or role == _REASONING:
        return None
    _templates[role] = MessageTemplate.of(kind, _defaults.get(kind) or _learn(kind))
    return _templates[role]


def _simple_entry(message: BaseMessage, kind: type[BaseMessage], fields: Fields) -> ChatMessage | None:
    """Return the entry of a message that is plain text; None for any other."""
    content, name, named = fields["content"], fields["name"], fields["id"]
    defaults = _defaults.get(kind) or _learn(kind)
    if (
        type(content) is not str
        or fields | {"content": "", "name": defaults["name"], "id": None} != defaults
        or not (name is None or type(name) is str)
        or not (named is None or type(named) is str)
        or message.__pydantic_extra__
        or message.__pydantic_private__
    ):
        return None
    return ChatMessage(_SIMPLE[kind], content, name=name, id=named)


# --- what an entry implies -------------------------------------------------------------------------------------------

_NOTHING = object()
_defaults: dict[type[BaseMessage], Fields] = {}


def _implied(kind: type[BaseMessage], entry: ChatMessage, unnamed: str | None = None) -> Fields:
    """Return the fields that an entry's own fields imply, without its metadata."""
    fields = (_defaults.get(kind) or _learn(kind)).copy()
    fields["content"] = _told_content(kind, entry)
    fields["name"] = entry.name
    fields["id"] = entry.id if entry.id is not None else unnamed
    if entry.tool_calls and "tool_calls" in fields:
        fields["tool_calls"] = [_langchain_call(call) for call in entry.tool_calls]
    if "tool_call_id" in fields:
        fields["tool_call_id"] = entry.tool_call_id or ""
    if "role" in fields:
        fields["role"] = entry.role
    return fields


def _told_content(kind: type[BaseMessage], entry: ChatMessage) -> str | list[Any]:
    """The content, with parts in LangChain's form where others have one of their own."""
    if entry.role == _REASONING and kind is langchain.AIMessage:
        return [{"type": "reasoning", "reasoning": entry.text}]
    if isinstance(entry.content, list):
        return [_told_part(part) for part in entry.content]
    return entry.content or ""


def _told_part(part: Any) -> Any:
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
    return part


def _learn(kind: type[BaseMessage]) -> Fields:
    """Learn the fields of a class and their defaults from an example message."""
    needed = {name: "" for name in ("name", "role", "tool_call_id") if name in kind.model_fields}
    made = langchain.RemoveMessage(id="") if kind is langchain.RemoveMessage else kind(content="", **needed)
    _defaults[kind] = vars(made)
    return _defaults[kind]


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call in the form of OpenAI's chat API, which most readers know."""
    try:
        arguments = json.dumps(call["args"], ensure_ascii=False)
    except (TypeError, ValueError):
        arguments = "{}"  # not JSON: stored in the metadata instead
    return {"id": call.get("id"), "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _langchain_call(call: Any) -> dict[str, Any]:
    """Return a tool call as LangChain's, from OpenAI's form or LangChain's own."""
    if not isinstance(call, dict):
        return {"name": "", "args": {}, "id": None, "type": "tool_call"}
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    arguments = named.get("arguments", named.get("args", named.get("input")))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"arguments": arguments}
    name = named.get("name")
    identity = call.get("id", call.get("call_id"))
    return {
        "name": name if isinstance(name, str) else "",
        "args": arguments,
        "id": identity if isinstance(identity, str) else None,
        "type": "tool_call",
    }


# --- values ----------------------------------------------------------------------------------------------------------


def _is_content(content: Any) -> bool:
    return type(content) is str or (type(content) is list and is_json(content))


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


_FIXED = frozenset({str, int, float, bool, type(None)})


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in _FIXED:
        return value
    if kind is dict:
        return {name: _copy(item) for name, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    try:
        return deepcopy(value)
    except TypeError:  # a tool's artifact may be an object that cannot be copied
        return value
