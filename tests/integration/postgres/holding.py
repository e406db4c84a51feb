"""A proxy in front of PostgreSQL that keeps one request, and sends it on when told, whoever has gone by then."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

READY = b"Z\x00\x00\x00\x05I"  # ReadyForQuery: the server has carried out what it was sent, and committed
WITHIN = 30.0


class HoldingProxy:
    """Forwards faithfully, but for the request that it holds. One request at a time."""

    def __init__(self, target: str) -> None:
        self._parts = urlsplit(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._matching: bytes | None = None
        self._then_cut = False
        self._links: list[tuple[socket.socket, socket.socket]] = []
        self._kept: tuple[bytes, socket.socket] | None = None
        self._answered = threading.Event()
        self.holds = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for link in self._links:
            for end in link:
                _hang_up(end)

    @property
    def url(self) -> str:
        user = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(
            netloc=f"{user}@127.0.0.1:{self._port}" if user else f"127.0.0.1:{self._port}"
        ).geturl()

    def hold(self, matching: bytes, *, then_cut: bool = False) -> None:
        """Keep the next request that has these bytes. `then_cut`: its client finds the connection broken."""
        self.holds.clear()
        self._then_cut = then_cut
        self._matching = matching

    def refuse_and_cut(self) -> None:
        """The client finds no server any more: neither on this connection nor on another."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client, _ in self._links:
            _hang_up(client)

    def release(self) -> None:
        """Send it on, and wait until the server has done with it."""
        assert self._kept is not None
        request, server = self._kept
        self._answered.clear()
        server.sendall(request)
        assert self._answered.wait(WITHIN)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._parts.hostname or "127.0.0.1", self._parts.port or 5432))
                self._links.append((client, server))
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        is_kept = False
        with contextlib.suppress(OSError):
            while request := client.recv(2**20):
                if self._matching is not None and self._matching in request:
                    self._matching, is_kept = None, True
                    self._kept = (request, server)
                    if self._then_cut:
                        _hang_up(client)
                    self.holds.set()
                elif not is_kept:
                    server.sendall(request)
        if not is_kept:  # else the server hears nothing of it: a network has kept what was sent, and what came behind
            _hang_up(server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while reply := server.recv(2**20):
                tail = (tail + reply)[-len(READY) :]
                if tail == READY and self._kept is not None and self._kept[1] is server:
                    self._answered.set()
                with contextlib.suppress(OSError):
                    client.sendall(reply)
        _hang_up(client)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
