"""FastAPI: a store for the life of each worker, handed to routes by `Depends(get_store)`.

    app = FastAPI(lifespan=store_lifespan("sqlite:///memory.db"), exception_handlers=STORE_ERRORS)

The store is opened in the worker that serves, after any fork, and closed when it ends. Routes use its own methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
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
from everturn.adapters._faces import require

require("fastapi", (0, 100), "fastapi")

from fastapi import FastAPI, Request  # noqa: E402 - behind the check, whose message says what to do
from fastapi.requests import HTTPConnection  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]

CODES: dict[type[MemoryStoreError], int] = {
    InvalidInput: 422,
    SessionNotFound: 404,
    SnapshotNotFound: 404,
    VersionConflict: 409,
    Unsupported: 501,
    MemoryStoreBackendError: 503,
}


def store_lifespan(url: str, *, then: Lifespan | None = None, **options: Any) -> Lifespan:
    """A lifespan for `FastAPI(lifespan=...)` that keeps a store open. `then`: a lifespan of your own, within it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with await open_async(url, **options) as store:
            app.state.everturn = store
            if then is None:
                yield
            else:
                async with then(app) as state:
                    yield state

    return lifespan


async def get_store(connection: HTTPConnection) -> AsyncMemoryStore:
    """The worker's store, for `Depends`, in routes and web sockets."""
    store = getattr(connection.app.state, "everturn", None)
    if not isinstance(store, AsyncMemoryStore):
        raise Unsupported(
            "no store is open in this application: FastAPI(lifespan=store_lifespan(url)); in a test, use the "
            "TestClient as a context manager"
        )
    return store


async def _answer(_request: Request, error: Exception) -> JSONResponse:
    """An error of the store as an answer that says what to do: whether to retry with the same key, re-read, or mend."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 500)
    body = {"detail": str(error), "error": type(error).__name__}
    if isinstance(error, MemoryStoreBackendError):
        body["outcome"] = error.outcome
    return JSONResponse(body, code)


STORE_ERRORS: dict[int | type[Exception], Any] = {MemoryStoreError: _answer}
"""For `FastAPI(exception_handlers=...)`: errors of the store become answers with a fitting code and the message."""
