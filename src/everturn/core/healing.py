"""Heals a prompt: makes messages that a model accepts out of any history. Pure, and at read time: nothing is stored.

Models refuse a whole prompt for one tool call without a result, or one result without a call; a session stays bricked
from then on. The rules of OpenAI and Anthropic, with their sources, are in tests/unit/prompt_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_not

import msgspec

from everturn.model import JSON, ChatMessage

HEALED = "No result was recorded for this tool call; it may not have run."


class _Call(msgspec.Struct):
    """A tool call: its id, the id it gets in the prompt, and whether there is a result that answers it."""

    name: str
    new_name: str
    is_part: bool  # a `tool_use` part, whose result is a part, too
    answered: bool = False


class _Piece(msgspec.Struct):
    """A message of the prompt: the one at `source`, or its results alone, or the rest of it."""

    source: int
    message: ChatMessage
    is_all_results: bool = False


def heal(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Make a prompt that models accept: every tool call is answered once, right behind the message that made it.

    An unanswered call gets a synthetic error result. A result that answers no call, or answers one that has its result,
    is left out. A result that stands further back moves up to its call; words that came between them follow it. A call
    whose id was used before gets another (`c1_2`), as does its result: a result answers the nearest call before it.
    An empty list of calls goes: the API of OpenAI refuses it, though some servers return it. Messages that need nothing
    of this are returned as they are. Healing twice changes nothing.
    """
    if not any(map(_concerns_tools, messages)):
        return list(messages)
    return _Healing([_without_empty_calls(message) for message in messages]).healed()


def has_healed(prompt: Sequence[ChatMessage], messages: Sequence[ChatMessage]) -> bool:
    """Whether `heal` made another prompt of these messages."""
    return len(prompt) != len(messages) or any(map(is_not, prompt, messages))


def _concerns_tools(message: ChatMessage) -> bool:
    return (
        message.role == "tool"
        or message.tool_calls is not None
        or message.tool_call_id is not None
        or (isinstance(message.content, list) and any(_is_part(part, _TYPES) for part in message.content))
    )


_TYPES = ("tool_use", "tool_result")


def _without_empty_calls(message: ChatMessage) -> ChatMessage:
    """Return the message itself, or one without its empty list of tool calls."""
    if message.tool_calls is None or message.tool_calls:
        return message
    content = "" if message.content is None else message.content
    return msgspec.structs.replace(message, tool_calls=None, content=content)


class _Healing:
    """One healing: which call each result answers, and then the messages in their new order."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self._messages = messages
        self._used = {name for message in messages for name, _ in _calls(message)}  # ids that no new one may be
        self._seen: set[str] = set()
        self._nearest: dict[
            str, tuple[int, list[_Call]]
        ] = {}  # by id: the last message that called, and its open calls
        self._calls: dict[int, list[_Call]] = {}  # by the message that makes them
        self._answers: dict[int, list[_Piece]] = {}  # by the message that made the call
        for index, message in enumerate(messages):
            if _concerns_tools(message):
                self._match(index, message)

    def _match(self, index: int, message: ChatMessage) -> None:
        """Give each result of the message to the nearest call before it, and note the calls it makes."""
        taken: dict[int, list[tuple[JSON, str]]] = {}  # results by the message they answer, with their new ids
        found = 0
        for name, part in _results(message):
            found += 1
            at, open_calls = self._nearest.get(name, (0, []))
            if open_calls:
                call = open_calls.pop(0)
                call.answered = True
                taken.setdefault(at, []).append((part, call.new_name))
        for at, results in taken.items():
            whole = len(taken) == 1 and len(results) == found
            self._answers.setdefault(at, []).append(_Piece(index, _only(message, results), whole))
        calls = [_Call(name, self._new_name(name), is_part) for name, is_part in _calls(message)]
        if calls:
            self._calls[index] = calls
            for name in {call.name for call in calls}:
                self._nearest[name] = (index, [call for call in calls if call.name == name])

    def _new_name(self, name: str) -> str:
        """Return the id itself at its first use, else one that no call has."""
        new, number = name, 1
        while new in self._seen or (number > 1 and new in self._used):
            number += 1
            new = f"{name}_{number}"
        self._seen.add(new)
        return new

    def healed(self) -> list[ChatMessage]:
        pieces: list[_Piece] = []
        for index, message in enumerate(self._messages):
            rest = _rest(message) if _concerns_tools(message) else message
            if rest is None:
                continue
            calls = self._calls.get(index)
            if calls is None:
                self._add(pieces, _Piece(index, rest))
                continue
            pieces.append(_Piece(index, _renamed(rest, calls)))
            pieces += self._answers.get(index, ())
            pieces += (_Piece(index, _missing(call)) for call in calls if not call.answered)
        return [piece.message for piece in pieces]

    def _add(self, pieces: list[_Piece], rest: _Piece) -> None:
        """Add the rest of a message; if all its results stand right before it, they are the message as it was."""
        whole = self._messages[rest.source]
        last = pieces[-1] if pieces else None
        if last is not None and last.source == rest.source and last.is_all_results and _begins_with(whole, last):
            last.message = whole
        else:
            pieces.append(rest)


def _begins_with(message: ChatMessage, results: _Piece) -> bool:
    """Whether the results are the first parts of the message, as they are in it."""
    parts, first = message.content, results.message.content
    return isinstance(parts, list) and isinstance(first, list) and parts[: len(first)] == first


# --- calls and results of one message --------------------------------------------------------------------------------


def _calls(message: ChatMessage) -> list[tuple[str, bool]]:
    """List the ids of the calls a message makes, in order, and whether each is a part. One that is both counts once."""
    listed = [call.get("id") for call in message.tool_calls or () if isinstance(call, dict)]
    parts = [part.get("id") for part in _parts(message) if _is_part(part, ("tool_use",))]
    names = [(name, False) for name in listed if isinstance(name, str)]
    return names + [(name, True) for name in parts if isinstance(name, str) and name not in listed]


def _results(message: ChatMessage) -> Iterator[tuple[str, JSON]]:
    """Yield the ids of calls that a message answers, each with its part (None: the whole message is the result)."""
    if message.tool_call_id is not None and not message.tool_calls:
        yield message.tool_call_id, None
        return
    for part in _parts(message):
        if _is_part(part, ("tool_result",)):
            name = part.get("tool_use_id")
            yield (name if isinstance(name, str) else ""), part


def _parts(message: ChatMessage) -> list[JSON]:
    return message.content if isinstance(message.content, list) else []


def _is_part(part: JSON, types: Sequence[JSON]) -> bool:
    return isinstance(part, dict) and part.get("type") in types


def _rest(message: ChatMessage) -> ChatMessage | None:
    """Return the message without results; None if nothing else is in it."""
    if message.tool_call_id is not None and message.tool_calls:
        message = msgspec.structs.replace(message, tool_call_id=None)
    if message.role == "tool" or message.tool_call_id is not None:
        return None
    parts = [part for part in _parts(message) if not _is_part(part, ("tool_result",))]
    if len(parts) == len(_parts(message)):
        return message
    return msgspec.structs.replace(message, content=parts or None) if parts or message.tool_calls else None


def _only(message: ChatMessage, results: Sequence[tuple[JSON, str]]) -> ChatMessage:
    """Return the message with these results alone, under their new ids. The message itself if nothing changes."""
    if results[0][0] is None:
        name = results[0][1]
        return message if name == message.tool_call_id else msgspec.structs.replace(message, tool_call_id=name)
    parts = [part if part["tool_use_id"] == name else part | {"tool_use_id": name} for part, name in results]
    return message if parts == message.content else msgspec.structs.replace(message, content=parts)


def _renamed(message: ChatMessage, calls: Sequence[_Call]) -> ChatMessage:
    """Return the message with the new ids of its calls. The message itself if nothing changes."""
    if all(call.name == call.new_name for call in calls):
        return message
    new: dict[str, list[str]] = {}
    for call in calls:
        new.setdefault(call.name, []).append(call.new_name)
    content = message.content
    if isinstance(content, list):
        content = _with_ids(content, new, ("tool_use",))
    return msgspec.structs.replace(
        message, content=content, tool_calls=_with_ids(message.tool_calls or (), new) or None
    )


def _with_ids(items: Sequence[JSON], new: dict[str, list[str]], types: Sequence[str] = ()) -> list[JSON]:
    """Return the calls among these items with their new ids, in order."""
    left = {name: iter(names) for name, names in new.items()}
    changed = []
    for item in items:
        name = item.get("id") if isinstance(item, dict) and (not types or _is_part(item, types)) else None
        changed.append(item | {"id": next(left[name], name)} if isinstance(name, str) and name in left else item)
    return changed


def _missing(call: _Call) -> ChatMessage:
    """Make the synthetic result of a call, in the form that the call has."""
    marked: dict[str, JSON] = {"healed": True}
    if not call.is_part:
        return ChatMessage("tool", HEALED, tool_call_id=call.new_name, metadata=marked)
    part = {"type": "tool_result", "tool_use_id": call.new_name, "content": HEALED, "is_error": True}
    return ChatMessage("user", [part], metadata=marked)
