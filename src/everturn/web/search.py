"""The search page: a text in one session, or in all where the backend can search them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everturn.errors import Unsupported
from everturn.ui.html import Node, shown, tag
from everturn.web.entries import entry
from everturn.web.links import link
from everturn.web.page import inspector_of, page

MOST = 50


async def search(request: Request) -> Response:
    inspector = inspector_of(request)
    text, session_id = request.query_params.get("text", ""), request.query_params.get("id") or None
    found: list[Node] = []
    if text:
        try:
            matches = await inspector.store.find(text, session_id=session_id, limit=MOST)
        except Unsupported as error:
            found.append(tag("p", shown(str(error)), class_="error", role="alert"))
        else:
            found.append(tag("p", f"{len(matches)}{' or more' if len(matches) == MOST else ''} found", role="status"))
            for match in matches:
                where = link("/session", shown(match.session_id), id=match.session_id)
                found.append(tag("section", tag("h2", where), entry(match.entry, match.session_id, mark="match")))
    return page(
        inspector,
        "Search",
        tag("h1", "Search"),
        tag(
            "form",
            tag("label", "Text ", tag("input", type="search", name="text", value=text, id="find", required=True)),
            tag("label", " in session ", tag("input", name="id", value=session_id or "", placeholder="all")),
            tag("button", "Search", type="submit"),
            method="get",
            class_="bar",
        ),
        *found,
    )
