"""The list of sessions: by id or by latest change, a page at a time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everturn.core.numbers import size
from everturn.model import Page, SessionInfo
from everturn.ui.descriptions import expiry, facts_in_words
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.links import link, url
from everturn.web.page import InspectorContext, ago, fragment, inspector_of, page, stamp

PER_PAGE = 50


async def listed(inspector: InspectorContext, request: Request) -> Page:
    """The sessions a request asks for."""
    asked = request.query_params
    recent = inspector.can_order and asked.get("order", "recent") == "recent"
    return await inspector.store.sessions(
        asked.get("q", ""), limit=PER_PAGE, page=asked.get("page"), order="recent" if recent else None
    )


async def sessions(request: Request) -> Response:
    inspector = inspector_of(request)
    asked = request.query_params
    found = await listed(inspector, request)
    query, order, token = asked.get("q", ""), asked.get("order"), asked.get("page")
    if "fragment" in asked:
        return fragment(_table(found))
    return page(
        inspector,
        "Sessions",
        tag("h1", "Sessions"),
        tag(
            "form",
            tag("label", "Sessions that begin with ", tag("input", type="search", name="q", value=query, id="find")),
            _order(inspector, query, order),
            tag("button", "Find", type="submit"),
            method="get",
            class_="bar",
        ),
        tag(
            "div",
            _table(found),
            id="live",
            data_live=url("/live", q=query, order=order, page=token, seen=stamp(found.sessions)),
            data_part=url("/", q=query, order=order, page=token, fragment=1),
        ),
        tag(
            "nav",
            link("/", "First page", q=query, order=order) if token else None,
            " ",
            link("/", "Next page", q=query, order=order, page=found.next) if found.next else None,
            aria_label="Pages",
        ),
    )


def _order(inspector: InspectorContext, query: str, order: str | None) -> Node:
    if not inspector.can_order:
        return tag("span", "by id (this backend cannot list by latest change)", class_="facts")
    by_name = order == "name"
    return tag(
        "span",
        link("/", "latest first", q=query, class_=None if by_name else "on"),
        " · ",
        link("/", "by id", q=query, order="name", class_="on" if by_name else None),
    )


def _table(found: Page) -> Html:
    if not found.sessions:
        return tag("p", "No sessions.", class_="facts")
    names = ("Session", "Messages", "Version", "Snapshots", "Size", "Changed", "Expires")
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", [_head(name) for name in names])),
            tag("tbody", map(_row, found.sessions)),
        ),
        class_="wide",
    )


def _head(name: str) -> Html:
    return tag(
        "th", name, scope="col", class_="number" if name in {"Messages", "Version", "Snapshots", "Size"} else None
    )


def _row(session: SessionInfo) -> Html:
    cells = [f"{session.messages:,}", f"{session.version:,}", f"{session.snapshots:,}", size(session.bytes)]
    return tag(
        "tr",
        tag(
            "th",
            link("/session", shown(session.session_id), id=session.session_id),
            tag("small", shown(f" {facts_in_words(session)}"), class_="facts") if session.facts else None,
            scope="row",
        ),
        [tag("td", cell, class_="number") for cell in cells],
        tag("td", ago(session.changed_at)),
        tag("td", expiry(session)),
    )
