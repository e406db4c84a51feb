"""Searches entries for a text, ignoring the case of ASCII letters. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everturn.model import JSON, ChatMessage, Entry, Record, ToolCall


def mentions(entry: Entry, text: str) -> bool:
    """Whether some string in the entry contains the text; ASCII letters match in either case."""
    wanted = fold(text)
    return any(wanted in fold(string) for string in _strings(_searchable(entry)))


_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(text: str) -> str:
    """Lower the ASCII letters and leave the rest: a rule that every backend can follow."""
    return text.translate(_FOLD)


def _searchable(entry: Entry) -> JSON:
    if isinstance(entry, ChatMessage):
        return [entry.to_dict()]
    if isinstance(entry, ToolCall):
        return [entry.name, entry.arguments, entry.call_id, entry.result, entry.error, entry.extra]
    if isinstance(entry, Record):
        return [entry.body]
    return [entry.text, entry.extra]


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
