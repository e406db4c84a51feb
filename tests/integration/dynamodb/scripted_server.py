"""A server on loopback that treats each request as a test says: answers it, cuts it off, or says nothing."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

Treatment: TypeAlias = Callable[[socket.socket, bytes], None]
"""Is called with the connection and the request that was read from it; the connection is closed afterwards."""


class ScriptedServer:
    """Listens on loopback. Each connection has one request, which is treated by the next treatment of the script; the
    last one is for all that follow."""

    def __init__(self, *script: Treatment, tls: ssl.SSLContext | None = None) -> None:
        self.script = list(script)
        self._tls = tls
        self.requests: list[bytes] = []
        self.greeting = b""  # is sent before anything is read
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self.ended = threading.Event()

    def _serve(self) -> None:
        while not self.ended.is_set():
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), line:
                line.settimeout(10)
                self._treat(line)

    def _treat(self, line: socket.socket) -> None:
        if self._tls is not None:
            line = self._tls.wrap_socket(line, server_side=True)
        with line:
            line.sendall(self.greeting)
            request = _read(line)
            if not request:
                return
            self.requests.append(request)
            treat = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            treat(line, request)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)


@contextmanager
def scripted(*script: Treatment, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Run a scripted server until the end of the block."""
    server = ScriptedServer(*script, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _read(line: socket.socket) -> bytes:
    """Read one request of HTTP; empty if the connection ends before it is whole."""
    request = b""
    while b"\r\n\r\n" not in request:
        part = line.recv(65536)
        if not part:
            return b""
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = next((int(each[15:]) for each in head.lower().split(b"\r\n") if each.startswith(b"content-length:")), 0)
    while len(body) < length:
        part = line.recv(65536)
        if not part:
            return b""
        body += part
    return head + b"\r\n\r\n" + body


def raw(answer: bytes) -> Treatment:
    """Answer with these bytes, whatever they are, and close."""

    def treat(line: socket.socket, _: bytes) -> None:
        line.sendall(answer)

    return treat


def page(status: int, body: bytes, kind: str = "text/html", **headers: str) -> Treatment:
    """Answer as something does that is not DynamoDB."""
    lines = [f"HTTP/1.1 {status} Told", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += (f"{name.replace('_', '-')}: {value}" for name, value in headers.items())
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def answer(status: int, body: dict[str, Any]) -> Treatment:
    """Answer as DynamoDB does."""
    told = json.dumps(body).encode()
    return page(status, told, "application/x-amz-json-1.0", x_amz_crc32=str(zlib.crc32(told)))


def error(code: str, status: int = 400, **more: Any) -> Treatment:
    """Answer with an error, as DynamoDB does."""
    return answer(status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as scripted", **more})


def cancelled(*reasons: str, **items: Any) -> Treatment:
    """Answer that a transaction was cancelled, for these reasons of its items."""
    told = [{"Code": reason, **({"Item": items[reason]} if reason in items else {})} for reason in reasons]
    return error("TransactionCanceledException", CancellationReasons=told)


def hang_up(line: socket.socket, request: bytes) -> None:
    """Close the connection without an answer."""


def reset(line: socket.socket, request: bytes) -> None:
    """Break the connection off without an answer."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def silent(line: socket.socket, request: bytes) -> None:
    """Say nothing, until the other side has given up."""
    with suppress(OSError):
        line.recv(1)
