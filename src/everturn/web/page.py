"""The frame of every page, the context of a request, and the page of an error."""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse

from everturn.core.numbers import lasting
from everturn.errors import (
    InvalidInput,
    KeyReused,
    MemoryStoreBackendError,
    MemoryStoreError,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
)
from everturn.model import SessionInfo
from everturn.store.aio import AsyncMemoryStore
from everturn.ui.html import Html, Node, join, named, shown, tag
from everturn.ui.times import at_time
from everturn.web.links import link, url

CODES = {
    SessionNotFound: 404,
    SnapshotNotFound: 404,
    VersionConflict: 409,
    KeyReused: 409,
    InvalidInput: 400,
    Unsupported: 400,
    MemoryStoreBackendError: 503,
}


class InspectorContext(msgspec.Struct, frozen=True):
    """The store that is inspected, and the options of the inspector."""

    store: AsyncMemoryStore
    name: str  # of the store, without a password
    can_change: bool = False
    can_order: bool = False  # whether the backend lists the latest changed first
    reports: tuple[Path, ...] = ()


def inspector_of(request: Request) -> InspectorContext:
    inspector: InspectorContext = request.app.state.inspector
    return inspector


def page(inspector: InspectorContext, title: str, *body: Node, status: int = 200) -> HTMLResponse:
    """A whole page."""
    mode = None if inspector.can_change else tag("span", "read-only", class_="mode")
    links = [link("/", "Sessions"), link("/search", "Search")]
    if inspector.reports:
        links.append(link("/reports", "Reports"))
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", f"{named(title)[:120]} · everturn"),
            tag("link", rel="icon", href=url("/static/icon.svg")),
            tag("link", rel="stylesheet", href=url("/static/inspector.css")),
            tag("link", rel="stylesheet", href=url("/static/violation.css")) if inspector.reports else None,
            tag("script", src=url("/static/inspector.js"), defer=True),
        ),
        tag(
            "body",
            tag("a", "Skip to the content", href="#main", class_="skip"),
            tag(
                "header",
                tag("strong", "everturn"),
                tag("nav", links, aria_label="Main"),
                tag("span", shown(inspector.name), class_="store"),
                mode,
                class_="top",
            ),
            tag("main", *body, id="main", tabindex="-1"),
            data_root=url(""),
        ),
        lang="en",
    )
    return HTMLResponse(f"<!doctype html>{document}", status)


def fragment(*nodes: Node) -> HTMLResponse:
    """A part of a page, for the script in the browser."""
    return HTMLResponse(join(nodes))


async def on_error(request: Request, error: Exception) -> HTMLResponse:
    """The page of an error, with its message; never an empty session."""
    status = next((code for kind, code in CODES.items() if isinstance(error, kind)), 500)
    title = {404: "Not found", 409: "The session has changed", 503: "The store did not answer"}.get(status, "Error")
    told = str(error) if isinstance(error, MemoryStoreError) else "The inspector failed; its log has the reason."
    return page(
        inspector_of(request),
        title,
        tag("h1", title),
        tag("p", shown(told), class_="error", role="alert"),
        tag("p", tag("a", "Try again", href=""), " or ", link("/", "see all sessions")),
        status=status,
    )


def ago(moment: float) -> Html:
    """The time since a moment, `5 min ago`, with the date as its title."""
    date = at_time(moment)
    return tag("time", f"{lasting(time.time() - moment)} ago", title=date, datetime=date.replace(" ", "T"))


def stamp(sessions: Iterable[SessionInfo]) -> str:
    """A hash of the versions of these sessions: it differs once a page of them would."""
    states = [(session.session_id, session.life, session.version) for session in sessions]
    return blake2b(msgspec.json.encode(states), digest_size=9).hexdigest()
