"""The routes of the inspector, behind its access control."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from everturn.errors import MemoryStoreError
from everturn.web import actions, compare, reports, search, server_sent_events, session_list, session_page
from everturn.web.page import InspectorContext, on_error
from everturn.web.security import AccessControl

STATIC = Path(__file__).with_name("static")
Opening = Callable[[], AbstractAsyncContextManager[InspectorContext]]

ROUTES = [
    Route("/", session_list.sessions),
    Route("/session", session_page.session),
    Route("/session/entries", session_page.earlier_entries),
    Route("/raw", session_page.raw),
    Route("/compare", compare.compare),
    Route("/search", search.search),
    Route("/live", server_sent_events.live),
    Route("/reports", reports.reports),
    Route("/static/violation.css", reports.style),
    Route("/rollback", actions.rollback_page),
    Route("/erase", actions.erase_page),
    Route("/act/{verb}", actions.act, methods=["POST"]),
    Mount("/static", StaticFiles(directory=STATIC)),
]


def make_app(
    opening: Opening, *, token: str, hosts: Iterable[str], root: str = "", ending: threading.Event | None = None
) -> ASGIApp:
    """The inspector as an ASGI application, below the path `root`. The store is opened in the loop that serves it.

    Once `ending` is set, streams end by themselves.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.listeners = 0
        app.state.ending = ending or threading.Event()
        async with opening() as inspector:
            app.state.inspector = inspector
            yield

    handlers = {MemoryStoreError: on_error, Exception: on_error}
    app = Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers=handlers)
    return AccessControl(app, token=token, hosts=hosts, root=root)
