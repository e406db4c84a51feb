"""ADK's events as entries, and back. Every event comes back equal. Pure.

Role, text, tool calls and results are stored in messages' own fields, for people and other frameworks. Anything that
these do not imply is stored in `metadata["adk"]`. An event without content is a record of kind `adk.event`. Its change
of state is a record of kind `adk.state` after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions
from google.genai.types import Content, FunctionCall, FunctionResponse, Part
from pydantic import BaseModel, TypeAdapter

from everturn import ChatMessage, Record
from everturn.adapters._shared.finite import refuse_non_finite
from everturn.model import Entry

OWN = "adk"  # key in a message's metadata
EVENT = "adk.event"  # kind of the record of an event without content
STATE = "adk.state"  # kind of the record of an event's change of state
OF = "of"  # in the metadata of an event's later messages: the event's id

Fields: TypeAlias = dict[str, Any]
"""Fields of an event, or of a part of one, as JSON."""

encode = msgspec.json.encode


# --- an event as entries ---------------------------------------------------------------------------------------------


def to_entries(event: Event) -> list[Entry]:
    """Return an event as entries, without its change of state. `to_events` returns an equal event.

    Raises InvalidInput for NaN and infinity, which JSON does not have.
    """
    refuse_non_finite(event, "event")
    refuse_non_finite(event.actions, "event.actions")
    for part in (event.content.parts if event.content is not None else None) or ():
        for named in (part.function_call, part.function_response):
            if named is not None:
                refuse_non_finite(named, "event.content")
    fields = event.model_dump(mode="json", exclude_none=True, exclude={"actions": {"state_delta"}})
    _without_defaults(fields)
    content = fields.pop("content", None)
    if not content or not content.get("parts"):
        return [Record(EVENT, fields if content is None else fields | {"content": content})]
    identity, author = fields.pop("id"), fields.pop("author", "")
    messages = _told(content["parts"], author, identity)
    implied = _implied(messages)
    if encode(implied["parts"]) != encode(content["parts"]):
        fields["parts"] = content["parts"]
    if content.get("role") != implied["role"]:
        fields["role"] = content.get("role")
    if author != _author(messages[0]):
        fields["author"] = author
    first, *more = messages
    return [_with(first, fields), *(_with(message, {OF: identity}) for message in more)]


_EMPTY = {name for name, field in EventActions.model_fields.items() if field.default_factory in (dict, list)}


def _without_defaults(fields: Fields) -> None:
    actions = fields["actions"]
    for name in _EMPTY & actions.keys():
        if not actions[name]:
            del actions[name]
    if not actions:
        del fields["actions"]
    if not fields["node_info"].get("path"):
        fields["node_info"].pop("path", None)
    if not fields["node_info"]:
        del fields["node_info"]
    for name in ("invocation_id", "author"):
        if fields[name] == "":
            del fields[name]


def _told(parts: list[Fields], author: str, identity: str) -> list[ChatMessage]:
    """Return parts as messages: one with the text and the tool calls, then one for each result."""
    role = "user" if author == "user" else "assistant"
    spoken = [part for part in parts if "function_call" not in part and "function_response" not in part]
    calls = [_call(part["function_call"]) for part in parts if "function_call" in part]
    results = [part["function_response"] for part in parts if "function_response" in part]
    name = author if role == "assistant" and author else None
    messages: list[ChatMessage] = []
    if spoken or calls or not results:
        content = _content(spoken) if spoken or not calls else None
        messages.append(ChatMessage(role, content, name=name, tool_calls=calls or None))
    messages.extend(
        ChatMessage("tool", _result(result), name=result.get("name"), tool_call_id=result.get("id") or "")
        for result in results
    )
    messages[0] = msgspec.structs.replace(messages[0], id=identity)
    return messages


def _content(parts: list[Fields]) -> str | list[Fields]:
    """Return the text of parts without thoughts; or, if some are not text, a list that names their types."""
    if all("text" in part for part in parts):
        return "".join(part["text"] for part in parts if not part.get("thought"))
    return [_mentioned(part) for part in parts if not part.get("thought")]


def _mentioned(part: Fields) -> Fields:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    kind, told = next(((name, value) for name, value in part.items() if isinstance(value, dict)), ("part", {}))
    return {"type": kind} | {name: value for name, value in told.items() if name in {"mime_type", "display_name"}}


def _call(call: Fields) -> Fields:
    arguments = encode(call.get("args") or {}).decode()
    function = {"name": call.get("name") or "", "arguments": arguments}
    return {"id": call.get("id"), "type": "function", "function": function}


def _result(result: Fields) -> str:
    """Return a tool's result as text. ADK wraps a result that is no dict as `{"result": ...}`."""
    response = result.get("response")
    if isinstance(response, dict) and list(response) == ["result"] and isinstance(response["result"], str):
        return response["result"]
    return encode(response).decode()


# --- entries as events -----------------------------------------------------------------------------------------------


def to_events(entries: Iterable[Entry]) -> list[Event]:
    """Return the events of entries, whichever framework wrote them, with their changes of state.

    Messages of an event whose first message is not among the entries are left out.
    """
    events: list[Event] = []
    group: list[ChatMessage] = []

    def finish() -> None:
        if group:
            events.append(_event(group))
            group.clear()

    for entry in entries:
        if isinstance(entry, ChatMessage):
            own = entry.metadata.get(OWN)
            if not isinstance(own, dict) or OF not in own:
                finish()
                group.append(entry)
            elif group and own[OF] == group[0].id:
                group.append(entry)
        elif isinstance(entry, Record):
            finish()
            if entry.kind == EVENT:
                events.append(Event.model_validate_json(encode(entry.body)))
            elif entry.kind == STATE and events and entry.body.get("event") == events[-1].id:
                events[-1].actions.state_delta = entry.body["delta"]
    finish()
    return events


def _event(messages: list[ChatMessage]) -> Event:
    first = messages[0]
    own = first.metadata.get(OWN)
    if not isinstance(own, dict):
        own = {"timestamp": first.created_at or 0.0}
    role = own.get("role", _NOTHING)
    if "parts" in own:
        role = _role(first) if role is _NOTHING else role
        content = Content.model_validate_json(encode({"parts": own["parts"], "role": role}))
    else:
        content = _made_content(messages)
        if role is not _NOTHING:
            content.role = role
    fields = {name: _restored(name, value) for name, value in own.items() if name not in {"parts", "role"}}
    fields["content"] = content
    fields["id"] = first.id if first.id is not None else f"everturn-{first.seq}"
    if "author" not in fields:
        fields["author"] = _author(first)
    event: Event = _maker(Event)(fields)
    return event


def _made_content(messages: list[ChatMessage]) -> Content:
    parts = [_made_part(part) for part in _implied(messages)["parts"]]
    content: Content = _maker(Content)({"parts": parts, "role": _role(messages[0])})
    return content


def _made_part(part: Fields) -> Part:
    if "function_call" in part:
        part = {"function_call": _maker(FunctionCall)(part["function_call"])}
    elif "function_response" in part:
        part = {"function_response": _maker(FunctionResponse)(part["function_response"])}
    made: Part = _maker(Part)(part)
    return made


_NOTHING = object()


def _implied(messages: list[ChatMessage]) -> Fields:
    """Build the content that messages' own fields imply, without metadata."""
    parts: list[Fields] = []
    for message in messages:
        if message.role == "tool":
            parts.append({"function_response": _implied_result(message)})
            continue
        if message.content is not None:
            parts.append({"text": message.text} | ({"thought": True} if message.role == "reasoning" else {}))
        parts.extend({"function_call": _implied_call(call)} for call in message.tool_calls or ())
    return {"parts": parts, "role": _role(messages[0])}


def _implied_call(call: Any) -> Fields:
    """Return a tool call as ADK's, from any common form that a framework may have stored."""
    inner = call.get("function") if isinstance(call, dict) else None
    function = inner if isinstance(inner, dict) else call if isinstance(call, dict) else {}
    arguments = function.get("arguments", function.get("args"))
    identity = call.get("id", call.get("call_id")) if isinstance(call, dict) else None
    made: Fields = {"id": identity} if isinstance(identity, str) else {}
    args = _object(arguments) if isinstance(arguments, str) else arguments
    made["args"] = args if isinstance(args, dict) else {"arguments": arguments}
    made["name"] = str(function.get("name") or "")
    return made


def _implied_result(message: ChatMessage) -> Fields:
    made: Fields = {"id": message.tool_call_id} if message.tool_call_id else {}
    made["name"] = message.name or ""
    response = _object(message.text)
    made["response"] = {"result": message.text} if response is None else response
    return made


def _object(text: str) -> Fields | None:
    """Parse a text as a JSON object; None if it is none."""
    if not text.startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _role(message: ChatMessage) -> str:
    return "user" if message.role in {"user", "tool", "system", "developer"} else "model"


def _author(message: ChatMessage) -> str:
    return "user" if message.role == "user" else message.name or message.role


def _with(message: ChatMessage, own: Fields) -> ChatMessage:
    return msgspec.structs.replace(message, metadata={OWN: own})


# --- models without validation ---------------------------------------------------------------------------------------
# Validation of every event takes most of the time of loading a session. Stored events were valid, so their models are
# made from fields directly. Only fields with nested models are validated.

_makers: dict[type[BaseModel], Callable[[Fields], Any]] = {}
_adapters: dict[str, TypeAdapter[Any]] = {}


def _restored(name: str, value: Any) -> Any:
    """Return the Python value of a stored field of an event."""
    if type(value) in _SIMPLE:
        return value if name in _PLAIN else _adapter(name).validate_json(encode(value))
    if name == "node_info" and list(value) == ["path"]:
        return _maker(NodeInfo)(dict(value))
    return _adapter(name).validate_json(encode(value))


_SIMPLE = frozenset({str, float, bool, type(None)})
_PLAIN = frozenset(
    name
    for name, field in Event.model_fields.items()
    if field.annotation in (str, float, bool, str | None, bool | None) and not field.metadata
)


def _adapter(name: str) -> TypeAdapter[Any]:
    if name not in _adapters:
        _adapters[name] = TypeAdapter[Any](Event.model_fields[name].annotation)  # type: ignore[arg-type]  # all have one
    return _adapters[name]


def _maker(kind: type[BaseModel]) -> Callable[[Fields], Any]:
    return _makers.get(kind) or _learn(kind)


def _learn(kind: type[BaseModel]) -> Callable[[Fields], Any]:
    """Make a function that builds models of a class from fields; missing fields get their defaults."""
    example = kind()
    defaults = vars(example)
    fresh = {name: _factory(value) for name, value in defaults.items() if type(value) not in _SIMPLE}
    put = object.__setattr__

    def make(fields: Fields) -> Any:
        made = kind.__new__(kind)
        own = defaults | fields
        for name, new in fresh.items():
            if name not in fields:
                own[name] = new()
        put(made, "__dict__", own)
        put(made, "__pydantic_fields_set__", set(fields))
        put(made, "__pydantic_extra__", None)
        put(made, "__pydantic_private__", None)
        return made

    is_bare = example.__pydantic_private__ is None and example.__pydantic_extra__ is None
    _makers[kind] = make if is_bare else lambda fields: kind.model_construct(**fields)  # has private attributes
    return _makers[kind]


def _factory(value: Any) -> Callable[[], Any]:
    if isinstance(value, BaseModel):
        make = _maker(type(value))
        return lambda: make({})
    return type(value)  # an empty dict or list
