"""HTML as values: `tag` makes elements, and everything else is text, which is escaped. Pure.

There is no way to write markup from a string, so that nothing a model or a customer wrote can become markup.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

# Characters that reorder text or hide it: controls, marks of direction, joiners without width, line separators.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_VOID = {"meta", "link", "input", "br", "hr"}


class Html(str):
    """Markup made by `tag`."""

    __slots__ = ()


Node: TypeAlias = "Html | str | int | Iterable[Node] | None"


def tag(name: str, /, *children: Node, **attributes: str | int | bool | None) -> Html:
    """An element. `class_` and `data_x` stand for the attributes `class` and `data-x`; False and None leave one out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(nodes: Iterable[Node]) -> Html:
    """The nodes one after the other."""
    return Html("".join(map(_written, nodes)))


def _written(node: Node) -> str:
    if node is None:
        return ""
    if isinstance(node, Html):
        return node
    if isinstance(node, (str, int)):
        return html.escape(str(node))
    return join(node)


def _attribute(key: str, value: str | int | None) -> str:  # a bool is an int
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


def shown(text: str) -> Html:
    """Show text that others wrote, code point for code point: an invisible character is shown by its name and cannot
    mislead."""
    parts: list[Node] = []
    place = 0
    for found in _INVISIBLE.finditer(text):
        parts += [text[place : found.start()], tag("span", f"U+{ord(found[0]):04X}", class_="unseen")]
        place = found.end()
    return join([*parts, text[place:]])


def named(text: str) -> str:
    """Show text that others wrote, where no element can stand: an invisible character is its code point in brackets."""
    return _INVISIBLE.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)
