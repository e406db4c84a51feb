"""The FastAPI dependency, in process and under real prefork workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from socket import create_server
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.testclient import TestClient

import everturn
from everturn import AsyncMemoryStore, ChatMessage
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan

ROOT = Path(__file__).parents[3]
Store = Annotated[AsyncMemoryStore, Depends(get_store)]


def make(url: str, **more: Any) -> FastAPI:
    return add_routes(FastAPI(lifespan=store_lifespan(url, **more), exception_handlers=STORE_ERRORS))


def add_routes(app: FastAPI) -> FastAPI:
    @app.get("/fail/{how}")
    async def fail(how: str, store: Store) -> None:
        await store.save_context("s", "a", "b")
        if how == "version":
            await store.save_context("s", "a", "b", expected_version=99)
        if how == "session":
            await store.info("nobody")
        if how == "input":
            await store.add_messages("s", [ChatMessage("", "x")])
        if how == "backend":
            await store.close()
            await store.info("s")

    @app.get("/messages")
    async def messages(store: Store) -> int:
        return len(await store.get_history("s"))

    @app.websocket("/socket")
    async def socket(connection: WebSocket, store: Store) -> None:
        await connection.accept()
        await connection.send_json({"messages": len(await store.get_history("s"))})
        await connection.close()

    return app


def test_errors_of_the_store_are_answers() -> None:
    with TestClient(make("sqlite://")) as client:
        for how, code in [("version", 409), ("session", 404), ("input", 422), ("backend", 503)]:
            answer = client.get(f"/fail/{how}")
            assert answer.status_code == code
            assert answer.json()["detail"]
    assert answer.json()["outcome"] == "not_written"


def test_a_web_socket_has_the_store_too() -> None:
    with TestClient(make("sqlite://")) as client, client.websocket_connect("/socket") as socket:
        assert socket.receive_json() == {"messages": 0}


def test_your_own_lifespan_runs_within() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> Any:
        seen.append(type(app.state.everturn).__name__)
        yield {"mine": 1}
        seen.append("ended")

    app = make("sqlite://", then=own)

    @app.get("/mine")
    async def mine(request: Request, store: Store) -> list[object]:
        return [request.state.mine, await store.get_history("s")]

    with TestClient(app) as client:
        assert client.get("/mine").json() == [1, []]
    assert seen == ["AsyncMemoryStore", "ended"]


def test_a_mounted_application_has_the_store_too() -> None:
    """Servers run the lifespan of the outermost application alone."""
    inner, innermost = FastAPI(), FastAPI(lifespan=store_lifespan("mysql://nobody-opens-it"))
    for mounted in (inner, innermost):
        add_routes(mounted)
    inner.mount("/deeper", innermost)
    app = make("sqlite://")
    app.mount("/inner", inner)
    app.mount("/wrapped", GZipMiddleware(inner))
    with TestClient(app) as client:
        for path in ("/socket", "/inner/socket", "/inner/deeper/socket", "/wrapped/socket"):
            with client.websocket_connect(path) as socket:
                assert socket.receive_json() == {"messages": 0}
        with pytest.raises(RuntimeError) as told:  # Starlette's, since the inner application answered 500
            client.get("/inner/fail/session")
        assert isinstance(told.value.__cause__, everturn.SessionNotFound)
        client.get("/inner/fail/none")
        assert client.get("/wrapped/messages").json() == client.get("/messages").json() == 4


def test_a_mounted_application_may_have_a_store_of_its_own() -> None:
    inner = add_routes(FastAPI())
    own = store_lifespan("sqlite://")

    @asynccontextmanager
    async def with_the_inner(_app: FastAPI) -> Any:
        async with own(inner):
            yield

    app = make("sqlite://", then=with_the_inner)
    app.mount("/inner", inner)
    with TestClient(app) as client:
        client.get("/inner/fail/none")
        assert (client.get("/messages").json(), client.get("/inner/messages").json()) == (0, 2)


def test_without_the_lifespan_one_is_told() -> None:
    app = FastAPI()

    @app.get("/")
    async def read(store: Store) -> None: ...

    with pytest.raises(everturn.Unsupported, match="store_lifespan"):
        TestClient(app).get("/")
    app.router.lifespan_context = store_lifespan("sqlite://")  # which nobody runs, below another
    outer = FastAPI()
    outer.mount("/inner", app)
    with TestClient(outer) as client, pytest.raises(everturn.Unsupported, match="outermost application"):
        client.get("/inner/")


# --- real workers ----------------------------------------------------------------------------------------------------

COMMANDS = {
    "uvicorn": ["-m", "uvicorn", "--workers", "3", "--port", "{port}", "--log-level", "warning"],
    "gunicorn": ["-m", "gunicorn", "-w", "3", "-k", "uvicorn_worker.UvicornWorker", "-b", "127.0.0.1:{port}"],
}


@contextmanager
def serving(server: str, url: str) -> Iterator[str]:
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = [word.format(port=port) for word in COMMANDS[server]]
    process = subprocess.Popen(
        [sys.executable, *words, "tests.adapters.fastapi.application:app"],
        cwd=ROOT,
        env=os.environ | {"EVERTURN_TEST_URL": url},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    base = f"http://127.0.0.1:{port}"
    try:
        _wait_for_workers(process, base)
        yield base
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stderr is not None:
                process.stderr.close()


def _wait_for_workers(process: subprocess.Popen[bytes], base: str) -> None:
    """Until two of them have answered: the port is open before the first can."""
    ends = time.monotonic() + 60
    seen: set[int] = set()
    while len(seen) < 2:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < ends, seen
        try:
            seen.add(call(f"{base}/worker"))
        except OSError:
            time.sleep(0.05)


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("server", list(COMMANDS))
def test_many_workers_lose_nothing(server: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with serving(server, url) as base, ThreadPoolExecutor(12) as callers:

        def say(number: int) -> None:
            turn = [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
            first = call(f"{base}/sessions/shared/messages?key=k{number}", turn)
            again = call(f"{base}/sessions/shared/messages?key=k{number}", turn)
            assert (again["version"], again["replayed"]) == (first["version"], True)

        list(callers.map(say, range(90)))
        history = [message["content"] for message in call(f"{base}/sessions/shared/messages")]
        assert sorted(history[::2]) == sorted(f"q{number}" for number in range(90))
        assert [text.replace("a", "q") for text in history[1::2]] == history[::2]
        with pytest.raises(urllib.error.HTTPError) as missing:
            call(f"{base}/sessions/nobody")
        assert missing.value.code == 404
        missing.value.close()
        assert call(f"{base}/mounted/sessions/shared") == {"messages": 180}
    with everturn.open(url) as store:
        assert store.info("shared").messages == 180
