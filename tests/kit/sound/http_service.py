"""A sound store behind HTTP: a process of its own has the data, and starts when it is first needed.

The client knows the port by a file. The service ends when its directory is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core

ROOT = Path(__file__).parents[3]
PORT = "service.port"


class Client:
    def __init__(self, where: Path) -> None:
        self.where = where
        self.port = started(where)

    def call(self, name: str, *arguments: Any) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", f"/{name}", json.dumps(arguments, allow_nan=False).encode())
            answer = connection.getresponse()
            body = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(body)
        return body

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        self.call("append", session_id, [dict(message) for message in messages])

    def get_history(self, session_id: str) -> list[Any]:
        return self.call("read", session_id)  # type: ignore[no-any-return]

    def trim(self, session_id: str, max_messages: int) -> None:
        self.call("trim", session_id, max_messages)

    def clear(self, session_id: str) -> None:
        self.call("clear", session_id)


def started(where: Path) -> int:
    """Return the port of the service for this directory; start it if there is none."""
    with (where / "service.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        port = where / PORT
        if not (port.exists() and answers(int(port.read_text()))):
            command = [sys.executable, "-m", __name__, str(where)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
            )
            assert process.stdout is not None
            with process.stdout as ready:
                if ready.readline() != b"ready\n":
                    raise RuntimeError("the service did not start")
        return int(port.read_text())


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True


class Handler(BaseHTTPRequestHandler):
    core: Core

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = 200, None
        try:
            name = self.path.removeprefix("/")
            found = getattr(self.core, name)(*arguments)
            body = found if name == "read" else None
        except Exception as exc:  # noqa: BLE001 - the client is told
            status, body = 500, repr(exc)
        answer = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def serve(where: Path) -> None:
    Handler.core = Core(where, timeout=20)
    server = Server(("127.0.0.1", 0), Handler)
    fresh = where / f"{PORT}.{os.getpid()}"
    fresh.write_text(str(server.server_port))
    fresh.replace(where / PORT)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with suppress(OSError):
        os.write(1, b"ready\n")
    while where.exists():
        time.sleep(0.2)


def factory(where: Path) -> Client:
    return Client(where)


factory.share_threads = True  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
