"""Addresses within the inspector: session ids are any text, so they travel as parameters and never as paths."""

from __future__ import annotations

from urllib.parse import urlencode

from everturn.markup import Html, Node, tag


def url(path: str, **parameters: str | int | None) -> str:
    """The address of a page; what is None is left out."""
    given = {name.rstrip("_"): value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def link(path: str, label: Node, *, class_: str | None = None, **parameters: str | int | None) -> Html:
    return tag("a", label, href=url(path, **parameters), class_=class_)
