"""Two versions of a session compared: entries that only one of them shows."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import zip_longest

from starlette.requests import Request
from starlette.responses import Response

from everturn.errors import InvalidInput
from everturn.model import Diff, Entry
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.entries import LONGEST, entry, plain
from everturn.web.links import link, number_in
from everturn.web.page import inspector_of, page

WINDOW = 200  # differences at a time
LONGEST_NUMBER = 15  # digits


async def compare(request: Request) -> Response:
    inspector = inspector_of(request)
    session_id = request.query_params.get("id", "")
    a, b = _point(request, "a"), _point(request, "b")
    if a is None:
        raise InvalidInput("is a version or a snapshot", path="a")
    await inspector.store.info(session_id)  # an absent session is an error, not two empty states
    found = await inspector.store.diff(session_id, a, b)
    title = f"{session_id}: {a} and {'now' if b is None else b}"
    return page(
        inspector,
        title,
        tag("h1", shown(title)),
        tag("p", link("/session", "Back to the session", id=session_id)),
        changed(found, a, b, _start(request)),
    )


def _start(request: Request) -> int:
    given = request.query_params.get("start", "0")
    return int(given) if given.isdecimal() and len(given) < LONGEST_NUMBER else 0


def _point(request: Request, name: str) -> int | str | None:
    given = request.query_params.get(name)
    return number_in(given, name) if given is not None and given.isdecimal() else given or None


def changed(found: Diff, a: int | str, b: int | str | None, start: int = 0) -> Html:
    """A window of the differences, from number `start` on. Where one entry was removed and another added, the two are
    shown side by side."""
    if not found.added and not found.removed:
        return tag("p", "No difference.", class_="facts")
    total, end = max(len(found.removed), len(found.added)), start + WINDOW
    counts = f"{len(found.removed):,} removed, {len(found.added):,} added"
    if total > WINDOW:
        counts += f"; showing {start + 1:,} to {min(end, total):,}"

    def other(name: str, place: int) -> Node:
        return link("/compare", name, id=found.session_id, a=a, b=b, start=place)

    more: list[Node] = [other("earlier differences", max(start - WINDOW, 0))] if start > 0 else []
    more += [" ", other("later differences", end)] if end < total else []
    way = tag("p", *more) if more else None
    return tag("div", tag("p", counts, class_="facts"), way, *_pairs(found, start, end), way, class_="changes")


def _pairs(found: Diff, start: int, end: int) -> Iterator[Node]:
    for gone, came in zip_longest(found.removed[start:end], found.added[start:end]):
        if gone is not None and came is not None and _alike(gone, came):
            yield tag("div", _words(gone, came, "gone"), _words(came, gone, "came"), class_="pair")
        else:
            if gone is not None:
                yield entry(gone, found.session_id, mark="gone")
            if came is not None:
                yield entry(came, found.session_id, mark="came")


def _alike(gone: Entry, came: Entry) -> bool:
    return type(gone) is type(came) and getattr(gone, "role", None) == getattr(came, "role", None)


def _words(one: Entry, other: Entry, mark: str) -> Html:
    """The text of one entry; words that the other does not have are marked."""
    mine, theirs = (plain(each)[:LONGEST].split(" ") for each in (one, other))
    parts: list[Node] = []
    if len(mine) * len(theirs) > 1_000_000:  # comparing so many words would take too long
        parts.append(shown(" ".join(mine)))
    else:
        for kind, start, end, _, _ in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
            words = shown(" ".join(mine[start:end]))
            parts += [words if kind == "equal" else tag("mark", words), " "]
    role = getattr(one, "role", type(one).__name__.lower())
    return tag(
        "article",
        tag("header", tag("span", shown(str(role)), class_="who"), tag("span", f"#{one.seq}", class_="seq")),
        tag("div", parts, class_="said", dir="auto"),
        class_=f"entry {mark}",
    )
