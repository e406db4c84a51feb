"""FastAPI: a store for the life of each worker, handed to routes by `Depends(get_store)`.

    app = FastAPI(lifespan=store_lifespan("sqlite:///memory.db"), exception_handlers=STORE_ERRORS)

Each worker process opens its own store when it starts, after any os.fork, and closes it when it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    EffectInDoubt,
    InvalidInput,
    KeyReused,
    LeaseHeld,
    LeaseLost,
    MemoryStoreBackendError,
    MemoryStoreError,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
    open_async,
)
from everturn.adapters._shared.sync_async import require

__all__ = ["STORE_ERRORS", "answer_once", "get_store", "store_lifespan"]

require("fastapi", (0, 100), "fastapi")

from fastapi import FastAPI, WebSocket  # noqa: E402 - after the check
from fastapi.requests import HTTPConnection  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from fastapi.websockets import WebSocketState  # noqa: E402

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]

CODES: dict[type[MemoryStoreError], int] = {
    InvalidInput: 422,
    SessionNotFound: 404,
    SnapshotNotFound: 404,
    VersionConflict: 409,
    KeyReused: 409,
    LeaseHeld: 409,
    LeaseLost: 409,
    EffectInDoubt: 409,
    Unsupported: 501,
    MemoryStoreBackendError: 503,
}

POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011  # close codes of RFC 6455
LONGEST_REASON = 123  # bytes of a close reason, by RFC 6455


def store_lifespan(url: str, *, then: Lifespan | None = None, **options: Any) -> Lifespan:
    """Return a lifespan for `FastAPI(lifespan=...)` that keeps a store open. `then`: your own lifespan, run inside it.

    `options` are those of `everturn.open_async`. Applications mounted in this one get the same store, because servers
    run only the outermost lifespan.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        async with await open_async(url, **options) as store:
            app.state.everturn = store
            # The yielded mapping is in `connection.state` of every connection, also in mounted applications.
            shared = {"everturn": store}
            if then is None:
                yield shared
            else:
                async with then(app) as state:
                    yield shared | dict(state or {})

    return lifespan


async def get_store(connection: HTTPConnection) -> AsyncMemoryStore:
    """Return the worker's store, for `Depends` in routes and web sockets. Raises Unsupported if none is open.

    An application's own store goes before that of an outer application.
    """
    for state in (connection.app.state, connection.state):
        store = getattr(state, "everturn", None)
        if isinstance(store, AsyncMemoryStore):
            return store
    raise Unsupported(
        "no store is open in this application: FastAPI(lifespan=store_lifespan(url)), which goes to the outermost "
        "application where one is mounted in another; in a test, use the TestClient as a context manager"
    )


async def answer_once(
    store: AsyncMemoryStore,
    session_id: str,
    question: ChatMessage,
    ask: Callable[[list[ChatMessage]], Awaitable[ChatMessage]],
    *,
    key: str,
    attempts: int = 5,
    **bounds: Any,
) -> ChatMessage:
    """Answer a message once, however often its request is repeated: a retry gets the first answer.

    `ask` gets the context of the session (within `bounds`, those of `get_context`) and the question, and returns the
    answer. Both are stored as one turn under `key`, the client's id of the request. If the turn is stored already, its
    answer is returned and no model is asked. If others change the session meanwhile, the model is asked again, up to
    `attempts` times; then VersionConflict is raised. Raises KeyReused if the key was used for another question:
    STORE_ERRORS makes a 409 of both.
    """
    while True:
        turn = await store.get_turn(session_id, key)
        if turn is not None:
            if len(turn.messages) == 2 and turn.messages[0] == question:
                return turn.messages[1]
            raise KeyReused(
                f"the key was used before in session {session_id!r}, for another message; a new one needs a new key",
                session_id=session_id,
                receipt=turn.receipt,
            )
        context = await store.get_context(session_id, **bounds)
        answer = await ask([*context.messages, question])
        attempts -= 1
        try:
            await store.add_messages(session_id, [question, answer], key=key, expected_version=context)
        except KeyReused:
            continue  # another attempt at the same request was stored first: its answer stands
        except VersionConflict:
            if attempts < 1:
                raise
        else:
            return answer


async def _answer(connection: HTTPConnection, error: Exception) -> JSONResponse | None:
    """Turn an error of the store into a response with a status code, the message, and the outcome of a backend error.

    A web socket gets the response if it was not accepted yet, and is closed otherwise.
    """
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 500)
    body: dict[str, object] = {"detail": str(error), "error": type(error).__name__}
    if isinstance(error, MemoryStoreBackendError):
        body["outcome"] = error.outcome
    elif isinstance(error, EffectInDoubt):
        body["in_progress"] = error.in_progress
    answer = JSONResponse(body, code)
    if not isinstance(connection, WebSocket):
        return answer
    if WebSocketState.DISCONNECTED in {connection.client_state, connection.application_state}:
        # No client is left, so raise it for the server to log. The error itself would come to this handler again.
        raise RuntimeError("an error of the store, when the web socket was closed already") from error
    if _may_be_answered(connection):
        await connection.send_denial_response(answer)
    else:
        await connection.close(POLICY_VIOLATION if code < 500 else INTERNAL_ERROR, _reason(error))
    return None


def _may_be_answered(socket: WebSocket) -> bool:
    """Whether a web socket was surely not accepted yet, so that it can get an HTTP response instead of a close.

    An error from a mounted application without a handler arrives with another WebSocket object than the route had,
    whose state does not tell. FastAPI before 0.110.1 cannot send such a response.
    """
    is_the_routes = MemoryStoreError in socket.app.exception_handlers
    can = hasattr(socket, "send_denial_response") and "websocket.http.response" in socket.scope.get("extensions", {})
    return can and is_the_routes and socket.application_state is WebSocketState.CONNECTING


def _reason(error: Exception) -> str:
    """Return the reason of a close frame: error, outcome and message, cut to 123 bytes."""
    outcome = f" [{error.outcome}]" if isinstance(error, MemoryStoreBackendError) else ""
    told = f"{type(error).__name__}{outcome}: {error}".encode()
    return told[:LONGEST_REASON].decode(errors="ignore")


STORE_ERRORS: dict[int | type[Exception], Any] = {MemoryStoreError: _answer}
"""Handlers for `FastAPI(exception_handlers=...)`: errors of the store become responses with a code and a message.

A web socket that was accepted is closed, with a code and the message as reason.
"""
