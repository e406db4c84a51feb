"""Errors of the store in web sockets, before and after they are accepted: under a real server, which is strict."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Depends, FastAPI, WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from everturn import AsyncMemoryStore, SessionNotFound, VersionConflict
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan

Store = Annotated[AsyncMemoryStore, Depends(get_store)]
LONG = "é" * 200


async def fail(how: str, store: AsyncMemoryStore) -> None:
    if how == "version":
        await store.save_context("s", "a", "b", expected_version=99)
    if how == "long":
        await store.info(LONG)
    if how == "backend":
        await store.close()
        await store.info("s")


def add_routes(app: FastAPI) -> FastAPI:
    @app.websocket("/accepted/{how}")
    async def accepted(connection: WebSocket, how: str, store: Store) -> None:
        await connection.accept()
        await connection.send_text("hello")
        await fail(how, store)

    @app.websocket("/refused/{how}")
    async def refused(connection: WebSocket, how: str, store: Store) -> None:
        await fail(how, store)

    @app.websocket("/left/{who}")
    async def left(connection: WebSocket, who: str, store: Store) -> None:
        await connection.accept()
        if who == "we":
            await connection.close()
        else:
            with pytest.raises(WebSocketDisconnect):
                await connection.receive_text()
        await fail("version", store)

    return app


def make() -> FastAPI:
    app = add_routes(FastAPI(lifespan=store_lifespan("sqlite://"), exception_handlers=STORE_ERRORS))
    app.mount("/plain", add_routes(FastAPI()))
    app.mount("/own", add_routes(FastAPI(exception_handlers=STORE_ERRORS)))
    return app


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = Thread(target=server.run)
    thread.start()
    try:
        ends = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < ends, "the server did not start"
            time.sleep(0.01)
        yield f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def closing(url: str) -> tuple[int, str]:
    """With which code and reason the server closes a socket that it has accepted."""
    with connect(url) as socket:
        assert socket.recv() == "hello"
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=30)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


def refusal(url: str) -> tuple[int, Any]:
    """With which code and body the server refuses a socket."""
    with pytest.raises(InvalidStatus) as refused, connect(url):
        pass
    response = refused.value.response
    return response.status_code, json.loads(response.body) if response.body else None


def test_a_socket_that_was_accepted_is_closed_and_told_why() -> None:
    with served(make()) as url:
        for place in ("", "/own", "/plain"):
            code, reason = closing(f"{url}{place}/accepted/version")
            assert (code, reason) == (1008, "VersionConflict: session 's' is at version 0, not 99; re-read and retry")
        code, reason = closing(f"{url}/accepted/long")
        assert code == 1008
        assert reason.startswith(f"SessionNotFound: there is no session '{LONG[:20]}")
        assert 120 < len(reason.encode()) <= 123  # no frame has room for more
        code, reason = closing(f"{url}/accepted/backend")
        assert code == 1011
        assert reason.startswith("MemoryStoreBackendError [not_written]: ")


def test_a_socket_that_was_not_accepted_is_answered_as_a_request_is() -> None:
    with served(make()) as url:
        for place in ("", "/own"):
            code, body = refusal(f"{url}{place}/refused/version")
            assert (code, body["error"]) == (409, "VersionConflict")
        assert refusal(f"{url}/plain/refused/version")[0] == 403  # the outer application cannot tell that it was not
        code, body = refusal(f"{url}/refused/backend")
        assert (code, body["outcome"]) == (503, "not_written")


def played(path: str) -> list[Any]:
    """What is sent over a socket by a server that can do no more than it must, whose client leaves at once."""
    coming, sent = iter(("websocket.connect", "websocket.disconnect")), []

    async def receive() -> Any:
        return {"type": next(coming), "code": 1001}

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        app = make()
        scope = {"type": "websocket", "path": path, "headers": [], "query_string": b"", "extensions": {}}
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    asyncio.run(run())
    return sent


def test_a_server_that_cannot_answer_a_socket_refuses_it() -> None:
    (closed,) = played("/refused/version")
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
    assert closed["reason"].startswith("VersionConflict: ")


@pytest.mark.parametrize("who", ["we", "they"])
def test_an_error_that_nobody_is_left_to_hear_of_is_the_servers_to_log(who: str) -> None:
    with pytest.raises(RuntimeError, match="closed already") as told:
        played(f"/left/{who}")
    assert isinstance(told.value.__cause__, VersionConflict)


def test_a_reason_fits_a_frame_whatever_it_says() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        app = FastAPI()
        for text in ("x", "x" * 500, "☃" * 100):
            socket = WebSocket({"type": "websocket", "app": app}, send, send)  # type: ignore[arg-type]
            handler = next(iter(STORE_ERRORS.values()))
            assert await handler(socket, SessionNotFound(text, session_id="s")) is None

    asyncio.run(run())
    assert [len(one["reason"].encode()) for one in sent] == [18, 123, 122]
