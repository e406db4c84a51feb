"""The inspector as an application in this process, and as a server with a real browser in front of it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import everturn
from everturn.web.app import make_app
from everturn.web.page import InspectorContext
from tests.conversation import have_it

HOST = "127.0.0.1:8642"
TOKEN = "the-token-that-was-printed"


def fill(url: str) -> None:
    """Write that conversation, and three others."""
    with everturn.open(url) as store:
        have_it(store)
        for number in range(3):
            store.save_context(f"other-{number}", "Hello", "Hi!")


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    fill(url)
    return url


Client = Callable[..., TestClient]


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """Makes clients of the inspector; with `admitted`, one that has exchanged the token for the cookie."""
    with contextlib.ExitStack() as open_clients:

        def make(
            *,
            can_change: bool = True,
            admitted: bool = True,
            can_order: bool = True,
            reports: tuple[Path, ...] = (),
            root: str = "",
        ) -> TestClient:
            @contextlib.asynccontextmanager
            async def opening() -> AsyncIterator[InspectorContext]:
                async with await everturn.open_async(url) as store:
                    yield InspectorContext(store, "sqlite:///memory.db", can_change, can_order, reports)

            app = make_app(opening, token=TOKEN, hosts=[HOST], root=root)
            made = open_clients.enter_context(TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False))
            if admitted:
                assert made.get(f"{root}/", params={"token": TOKEN}).status_code == 200
            return made

        yield make


@pytest.fixture
def serve(url: str) -> Iterator[Any]:
    """Starts inspectors; each is a process of its own, and gone when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> str:
        command = [sys.executable, "-m", "everturn.cli", "serve", url, "--no-open", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address
        return address[0]

    yield start
    for process in started:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
