"""Entries as people read them in a terminal, and as scripts read them.

Pure: values in, lines out. Others wrote the text of an entry, so none of it reaches the terminal uncleaned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from everturn.cli.adapter_records import in_words
from everturn.cli.output import clean, clean_lines
from everturn.model import JSON, ChatMessage, Entry, Record, Summary, ToolCall
from everturn.ui.descriptions import called_tool, embedded

ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold magenta", "tool": "yellow"}
SHORT = 200  # of a value that is only mentioned
GUTTER = 7  # the column of seqs
_FOLDER = Console()  # it knows how wide characters are


def entry_lines(entry: Entry, width: int, *, mark: str = "", style: str = "") -> Iterator[Text]:
    """The entry as lines: seq, speaker and text, folded to the width with a hanging indent."""
    who, who_style, said = _spoken(entry)
    head = f"{mark}{entry.seq if entry.seq is not None else '':>{GUTTER - len(mark) - 1}} "
    label = f"{clean(who):<9} "
    indent = len(head) + len(label)
    first = True
    for line in _folded(said, max(width - indent, 20)):
        text = Text(style=style)
        if first:
            text.append(head, style or "dim").append(label, style or who_style)
        else:
            text.append(" " * indent)
        yield text.append(line, "dim" if isinstance(entry, Record) and not style else None)
        first = False


def _spoken(entry: Entry) -> tuple[str, str, str]:
    """The speaker, the style of its name, and the text."""
    if isinstance(entry, ChatMessage):
        who = f"{entry.role} ({entry.name})" if entry.name else entry.role
        return who, ROLE_STYLES.get(entry.role, "bold"), "\n".join(_message_parts(entry))
    if isinstance(entry, ToolCall):
        return "call", "yellow", _tool_call(entry)
    if isinstance(entry, Summary):
        first, last = entry.covers
        return "summary", "blue", f"{entry.text}\n[of {first} to {last}; {embedded(entry)}]"
    return "record", "dim", in_words(entry) or f"{entry.kind}: {short(entry.body)}"


def _message_parts(message: ChatMessage) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
    for part in message.content if isinstance(message.content, list) else ():
        yield part_text(part)
    for call in message.tool_calls or ():
        yield f"-> {_named_call(call)}"
    if message.tool_call_id is not None:
        yield f"[answers {message.tool_call_id}]"


def part_text(part: JSON) -> str:
    """A part of a content: its text, or what stands in for an image or a file."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        kind = part.get("type", "part")
        return f"[{kind}: {short({name: value for name, value in part.items() if name != 'type'}, 60)}]"
    return short(part)


def _named_call(call: JSON) -> str:
    """One of a message's tool calls: `search({"q": 1}) [call-7]`."""
    called = called_tool(call)
    given = called.arguments
    arguments = given if isinstance(given, str) else "" if given is None else short(given)
    return f"{called.name}({arguments})" + (f" [{called.id}]" if called.id else "")


def _tool_call(call: ToolCall) -> str:
    lines = [f"{call.name}({short(call.arguments)})" + (f" [{call.call_id}]" if call.call_id else "")]
    if call.error is not None:
        lines.append(f"! {call.error}")
    elif call.result is not None:
        lines.append(f"= {call.result if isinstance(call.result, str) else short(call.result)}")
    if call.duration is not None:
        lines.append(f"[took {call.duration:.3g} s]")
    return "\n".join(lines)


def short(value: JSON, longest: int = SHORT) -> str:
    """A JSON value on one line, cut where it gets long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def one_line(entry: Entry, longest: int = 60) -> str:
    """The entry in a few words, for a graph or a list; no wider than `longest` columns of a terminal."""
    who, _, said = _spoken(entry)
    text = " ".join(clean(said[: 4 * longest].replace("\n", " ")).split())
    line = f"{clean(who)}: {text}"
    return line if cell_len(line) <= longest else f"{set_cell_size(line, longest - 3).rstrip()}..."


def _folded(text: str, width: int) -> Iterator[str]:
    for line in clean_lines(text).split("\n"):
        if line.isascii():
            yield from _folded_ascii(line, width)
        else:
            yield from (folded.plain for folded in Text(line).wrap(_FOLDER, width))


def _folded_ascii(line: str, width: int) -> Iterator[str]:
    """Fold at blanks, where there are any. Rich, which knows wide characters, takes ten times as long."""
    while len(line) > width:
        blank = line.rfind(" ", 1, width + 1)
        cut = blank if blank > 0 else width
        yield line[:cut].rstrip()
        line = line[cut:].lstrip(" ")
    yield line.rstrip()


def as_json(entry: Entry) -> dict[str, Any]:
    """The entry with everything in it: `kind`, `seq`, `created_at` and its own fields."""
    marks = {"kind": kind_of(entry), "seq": entry.seq, "created_at": entry.created_at}
    if isinstance(entry, ChatMessage):
        return marks | entry.to_dict()
    if isinstance(entry, Record):
        return marks | {"body": entry.body}
    names = [name for name in entry.__struct_fields__ if name not in {"seq", "created_at", "extra"}]
    return marks | {name: getattr(entry, name) for name in names} | (entry.extra or {})


def kind_of(entry: Entry) -> str:
    if isinstance(entry, Record):
        return entry.kind
    return {ChatMessage: "message", ToolCall: "tool_call", Summary: "summary"}[type(entry)]
