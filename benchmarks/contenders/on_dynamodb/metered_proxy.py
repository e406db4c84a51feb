"""A proxy in front of a stand-in for DynamoDB that counts requests and asks for the units of each.

It adds `ReturnConsumedCapacity` to every request, so that the stand-in tells them, whatever driver sent it.
"""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

READS = frozenset({"GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan"})
METERED = READS | {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}


class Meter:
    """Requests and units since it was begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Count from 0."""
        self.requests, self.written, self.read = 0, 0.0, 0.0

    def note(self, operation: str, answer: dict[str, Any]) -> None:
        """Count a request with its answer."""
        told = answer.get("ConsumedCapacity") or []
        units = sum(each.get("CapacityUnits", 0.0) for each in (told if isinstance(told, list) else [told]))
        with self._lock:
            self.requests += 1
            if operation in READS:
                self.read += units
            else:
                self.written += units

    def line(self, times: int) -> str:
        """Tell the average of so many calls."""
        return f"{self.requests / times:.1f} requests, {self.written / times:.1f} WCU, {self.read / times:.1f} RCU"


class MeteredProxy:
    """Listens on a loopback port until the end of the block."""

    def __init__(self, endpoint: str) -> None:
        """Forward to this endpoint."""
        self.meter = meter = Meter()
        address = urlsplit(endpoint).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                if operation in METERED:
                    body["ReturnConsumedCapacity"] = "TOTAL"
                kept = {name: value for name, value in self.headers.items() if name.lower() not in DROPPED}
                connection = http.client.HTTPConnection(address, timeout=60)
                try:
                    connection.request("POST", "/", json.dumps(body).encode(), kept)
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                if operation in METERED:
                    meter.note(operation, json.loads(content))
                self.send_response(answer.status)
                for name in ("Content-Type", "x-amz-crc32", "x-amzn-RequestId"):
                    if (value := answer.headers.get(name)) is not None:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        """Begin to forward."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


DROPPED = frozenset({"content-length", "host", "connection", "accept-encoding"})
