"""Entries as people read them on a page. Pure: values in, elements out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from everturn.model import JSON, ChatMessage, Entry, Record, Summary, ToolCall
from everturn.ui.descriptions import called_tool, embedded
from everturn.ui.html import Html, Node, shown, tag
from everturn.ui.times import at_time
from everturn.web.links import link

LONGEST = 20_000  # characters of one text on a page; the rest is one click away


def entry(one: Entry, session_id: str, *, mark: str = "") -> Html:
    """One entry: its role, its content, and its seq as a link to itself."""
    who, kind, body = _parts(one, session_id)
    return tag(
        "article",
        tag("header", tag("span", shown(who), class_="who"), _seq(one)),
        *body,
        class_=f"entry {kind} {mark}".strip(),
        id=None if mark else f"e{one.seq}",
        data_seq=one.seq,
    )


def _seq(one: Entry) -> Html:
    return tag(
        "span", tag("time", at_time(one.created_at)), " ", tag("span", f"#{one.seq}", class_="seq"), class_="when"
    )


def _parts(one: Entry, session_id: str) -> tuple[str, str, list[Node]]:
    """The speaker, the CSS class, and the body of an entry."""
    if isinstance(one, ChatMessage):
        role = one.role if one.role in {"user", "assistant", "system", "tool"} else "other"
        who = f"{one.role} · {one.name}" if one.name else one.role
        return who, role, list(_message(one, session_id))
    if isinstance(one, ToolCall):
        return f"tool call · {one.name}", "call", list(_tool_call(one, session_id))
    if isinstance(one, Summary):
        first, last = one.covers
        facts = tag("p", f"stands for #{first} to #{last}; {embedded(one)}", class_="facts")
        return "summary", "summary", [text(one.text, session_id, one.seq), facts]
    return f"record · {one.kind}", "record", [folded("body", one.body, session_id, one.seq)]


def _message(message: ChatMessage, session_id: str) -> Iterator[Node]:
    if message.tool_call_id is not None:
        yield tag("p", "answers ", tag("code", shown(message.tool_call_id)), class_="facts")
    if isinstance(message.content, str):
        if message.role == "tool" and len(message.content) > 300:
            yield tag(
                "details",
                tag("summary", shown(message.content[:80]), "…"),
                text(message.content, session_id, message.seq),
            )
        else:
            yield text(message.content, session_id, message.seq)
    for part in message.content if isinstance(message.content, list) else ():
        yield _part(part, session_id, message.seq)
    for call in message.tool_calls or ():
        yield _named_call(call, session_id, message.seq)
    if message.metadata:
        yield folded("metadata", message.metadata, session_id, message.seq)


def _part(part: JSON, session_id: str, seq: int | None) -> Node:
    if isinstance(part, str):
        return text(part, session_id, seq)
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return text(part["text"], session_id, seq)
    kind = str(part.get("type", "part")) if isinstance(part, dict) else "part"
    return tag("div", tag("span", shown(kind), class_="placeholder"), folded("details", part, session_id, seq))


def _named_call(call: JSON, session_id: str, seq: int | None) -> Html:
    """One of a message's tool calls, its arguments folded."""
    called = called_tool(call)
    return folded(f"calls {called.name}", call if called.arguments is None else called.arguments, session_id, seq)


def _tool_call(call: ToolCall, session_id: str) -> Iterator[Node]:
    yield folded("arguments", call.arguments, session_id, call.seq)
    if call.error is not None:
        yield tag("p", shown(call.error[:LONGEST]), class_="error")
    elif call.result is not None:
        yield folded("result", call.result, session_id, call.seq)
    if call.duration is not None:
        yield tag("p", f"took {call.duration:.3g} s", class_="facts")


def text(said: str, session_id: str, seq: int | None) -> Html:
    """Show a text of an entry; of a very long one the beginning, and a link to all of it."""
    if len(said) <= LONGEST:
        return tag("div", shown(said), class_="said", dir="auto")
    whole = link("/raw", f"all {len(said):,} characters", id=session_id, seq=seq)
    return tag("div", shown(said[:LONGEST]), "… ", whole, class_="said", dir="auto")


def folded(title: str, value: JSON, session_id: str, seq: int | None) -> Html:
    """A JSON value behind its title."""
    said = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return tag("details", tag("summary", shown(title)), text(said, session_id, seq))


def plain(one: Entry) -> str:
    """The entry as plain text, whole."""
    if isinstance(one, ChatMessage):
        return one.text or msgspec.json.encode(one.to_dict()).decode()
    if isinstance(one, Summary):
        return one.text
    if isinstance(one, Record):
        return msgspec.json.format(msgspec.json.encode(one.body), indent=2).decode()
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(one)), indent=2).decode()


def entries(many: Iterable[Entry], session_id: str) -> list[Html]:
    return [entry(one, session_id) for one in many]
