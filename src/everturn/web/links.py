"""Addresses within the inspector: session ids are any text, so they travel as parameters and never as paths."""

from __future__ import annotations

from contextvars import ContextVar
from urllib.parse import urlencode

from everturn.errors import InvalidInput
from everturn.ui.html import Html, Node, tag

DIGITS = 18  # int() refuses more than 4,300, and no number here is that large
ROOT: ContextVar[str] = ContextVar("root", default="")
"""The path below which this inspector's pages are; set by AccessControl, for each request."""


def url(path: str, **parameters: str | int | None) -> str:
    """The address of a page; parameters that are None are left out."""
    given = {name.rstrip("_"): value for name, value in parameters.items() if value is not None}
    return ROOT.get() + (f"{path}?{urlencode(given)}" if given else path)


def number_in(text: str, path: str) -> int:
    """A parameter as a whole number. Raises InvalidInput."""
    if not text.isdecimal() or len(text) > DIGITS:
        raise InvalidInput(f"is a whole number of up to {DIGITS} digits", path=path)
    return int(text)


def point_in(text: str) -> int | str | None:
    """A parameter as a state of a session: a version (a number), or a snapshot's id; None if it is empty."""
    return number_in(text, "at") if text.isdecimal() else text or None


def link(path: str, label: Node, *, class_: str | None = None, **parameters: str | int | None) -> Html:
    return tag("a", label, href=url(path, **parameters), class_=class_)
