"""Opens a store and serves the inspector on loopback, until it is interrupted."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import uvicorn

import everturn
from everturn.core.masking import masked_url
from everturn.errors import MemoryStoreBackendError, Unsupported
from everturn.web.app import make_app
from everturn.web.connection_limits import IncompleteRequests
from everturn.web.page import InspectorContext

LOOPBACK = "127.0.0.1"
TIMEOUT = 10.0


def serve(
    url: str,
    *,
    port: int = 0,
    can_change: bool,
    options: Mapping[str, Any] = MappingProxyType({}),
    reports: Sequence[Path] = (),
    ready: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve until interrupted. Calls `ready` with the address, token included, once the server listens.

    `options` are those of `open_async`.
    """
    token = secrets.token_urlsafe(24)
    root = f"/{secrets.token_urlsafe(12)}"
    with _listening(port) as listener:
        number = listener.getsockname()[1]
        hosts = (f"{LOOPBACK}:{number}", f"localhost:{number}")

        @contextlib.asynccontextmanager
        async def opening() -> AsyncIterator[InspectorContext]:
            given: dict[str, Any] = dict(options) if "timeout=" in url else {"timeout": TIMEOUT, **options}
            async with await everturn.open_async(url, **given) as store:
                try:
                    await store.sessions(limit=1, order="recent")
                    can_order = True
                except Unsupported:
                    can_order = False
                ready(f"http://{LOOPBACK}:{number}{root}/?token={token}")
                yield InspectorContext(store, masked_url(url), can_change, can_order, tuple(reports))

        ending = threading.Event()
        app = make_app(opening, token=token, hosts=hosts, root=root, ending=ending)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses hold tokens and session ids
            lifespan="on",
            timeout_graceful_shutdown=3,
            http=IncompleteRequests().protocol,  # type: ignore[arg-type]  # a class is expected, and called
            ws="none",
            limit_concurrency=200,
            server_header=False,
            h11_max_incomplete_event_size=32 * 1024,
        )
        _InspectorServer(config, ending).run(sockets=[listener])


class _InspectorServer(uvicorn.Server):
    """Tells open streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, ending: threading.Event) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending.set()
        super().handle_exit(sig, frame)


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as exc:
        raise MemoryStoreBackendError(
            f"port {port} cannot be used ({exc.strerror}); --port 0 takes a free one", outcome="not_written"
        ) from exc
