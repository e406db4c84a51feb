"""FastAPI: a store for the life of each worker, handed to routes by `Depends(get_store)`.

    app = FastAPI(lifespan=store_lifespan("sqlite:///memory.db"), exception_handlers=STORE_ERRORS)

The store is opened in the worker that serves, after any fork, and closed when it ends. Routes use its own methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from everturn import (
    AsyncMemoryStore,
    InvalidInput,
    MemoryStoreBackendError,
    MemoryStoreError,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
    open_async,
)
from everturn.adapters._shared.sync_async import require

__all__ = ["STORE_ERRORS", "get_store", "store_lifespan"]

require("fastapi", (0, 100), "fastapi")

from fastapi import FastAPI, WebSocket  # noqa: E402 - behind the check, whose message says what to do
from fastapi.requests import HTTPConnection  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from fastapi.websockets import WebSocketState  # noqa: E402

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]

CODES: dict[type[MemoryStoreError], int] = {
    InvalidInput: 422,
    SessionNotFound: 404,
    SnapshotNotFound: 404,
    VersionConflict: 409,
    Unsupported: 501,
    MemoryStoreBackendError: 503,
}

POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011  # codes that a web socket is closed with, of RFC 6455
LONGEST_REASON = 123  # bytes


def store_lifespan(url: str, *, then: Lifespan | None = None, **options: Any) -> Lifespan:
    """A lifespan for `FastAPI(lifespan=...)` that keeps a store open. `then`: a lifespan of your own, within it.

    Applications that are mounted in this one have the store too: servers run the outermost lifespan alone.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        async with await open_async(url, **options) as store:
            app.state.everturn = store
            # What a lifespan yields is in the state of every connection, whichever application it gets to.
            shared = {"everturn": store}
            if then is None:
                yield shared
            else:
                async with then(app) as state:
                    yield shared | dict(state or {})

    return lifespan


async def get_store(connection: HTTPConnection) -> AsyncMemoryStore:
    """The worker's store, for `Depends`, in routes and web sockets. An application's own goes before an outer one's."""
    for state in (connection.app.state, connection.state):
        store = getattr(state, "everturn", None)
        if isinstance(store, AsyncMemoryStore):
            return store
    raise Unsupported(
        "no store is open in this application: FastAPI(lifespan=store_lifespan(url)), which goes to the outermost "
        "application where one is mounted in another; in a test, use the TestClient as a context manager"
    )


async def _answer(connection: HTTPConnection, error: Exception) -> JSONResponse | None:
    """An error of the store as an answer that says what to do: whether to retry with the same key, re-read, or mend."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 500)
    body = {"detail": str(error), "error": type(error).__name__}
    if isinstance(error, MemoryStoreBackendError):
        body["outcome"] = error.outcome
    answer = JSONResponse(body, code)
    if not isinstance(connection, WebSocket):
        return answer
    if WebSocketState.DISCONNECTED in {connection.client_state, connection.application_state}:
        # Nobody is left to hear of it, so that the server is to log it. Raised as it is, it would come here again.
        raise RuntimeError("an error of the store, when the web socket was closed already") from error
    if _may_be_answered(connection):
        await connection.send_denial_response(answer)
    else:
        await connection.close(POLICY_VIOLATION if code < 500 else INTERNAL_ERROR, _reason(error))
    return None


def _may_be_answered(socket: WebSocket) -> bool:
    """Whether it was surely not accepted, so that it can be answered as a request is. It can be closed at any time.

    An error that comes from a mounted application which has no handler of it comes with another object than the route
    had, which does not know. FastAPI before 0.110.1 has no such answers, and closes.
    """
    is_the_routes = MemoryStoreError in socket.app.exception_handlers
    can = hasattr(socket, "send_denial_response") and "websocket.http.response" in socket.scope.get("extensions", {})
    return can and is_the_routes and socket.application_state is WebSocketState.CONNECTING


def _reason(error: Exception) -> str:
    """What fits into a closing frame, the outcome first."""
    outcome = f" [{error.outcome}]" if isinstance(error, MemoryStoreBackendError) else ""
    told = f"{type(error).__name__}{outcome}: {error}".encode()
    return told[:LONGEST_REASON].decode(errors="ignore")


STORE_ERRORS: dict[int | type[Exception], Any] = {MemoryStoreError: _answer}
"""For `FastAPI(exception_handlers=...)`: errors of the store become answers with a fitting code and the message.

Web sockets that were accepted are closed, with a code and the message as reason.
"""
