"""Server-sent events: a page hears that a session has changed, and loads it again.

The store is polled: writers in other processes notify nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from everturn.errors import MemoryStoreError, SessionNotFound
from everturn.web.page import InspectorContext, inspector_of, stamp
from everturn.web.session_list import listed

EVERY = 0.7  # seconds between polls
AT_REST = 10  # pause for so many times the duration of a poll: an open page must not load a slow store
ALIVE = 15.0  # seconds between comments in the stream, so that a closed browser is noticed
MOST_LISTENERS = 40


async def live(request: Request) -> Response:
    """A stream of `changed` events, for one session (`id`) or for a page of the list."""
    state = request.app.state
    if state.listeners >= MOST_LISTENERS:
        return PlainTextResponse("Too many pages are open.\n", 503)
    return StreamingResponse(_events(inspector_of(request), request), media_type="text/event-stream")


async def _events(inspector: InspectorContext, request: Request) -> AsyncIterator[str]:
    state = request.app.state
    state.listeners += 1
    try:
        yield "retry: 2000\n\n"
        loop = asyncio.get_running_loop()
        # The state that the page showed when it was made: changes since then are news, too.
        seen, told = request.query_params.get("seen"), loop.time()
        while not state.ending.is_set():
            looked = loop.time()
            now = await _stamp(inspector, request)
            if now != seen:
                seen, told = now, loop.time()
                yield "event: changed\ndata: 1\n\n"
            elif loop.time() - told >= ALIVE:
                told = loop.time()
                yield ": still here\n\n"
            await asyncio.sleep(max(EVERY, AT_REST * (loop.time() - looked)))
    finally:
        state.listeners -= 1


async def _stamp(inspector: InspectorContext, request: Request) -> str:
    """A string that differs once the page would."""
    session_id = request.query_params.get("id")
    try:
        if session_id is not None:
            return stamp([await inspector.store.info(session_id)])
        return stamp((await listed(inspector, request)).sessions)
    except SessionNotFound:
        return "gone"
    except MemoryStoreError:
        return "down"  # the page asks again, and shows the error
