"""Other servers and other programs on this machine: they get no cookie, and cannot keep the owner out."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.children import eventually

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class Browser:
    """Keeps cookies as a browser does: for a host and a path, whatever the port."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))

    def get(self, address: str) -> int:
        try:
            with self._opener.open(address, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code


def without_token(address: str) -> str:
    return address.partition("?")[0]


def test_a_second_inspector_leaves_the_first_as_it_is(serve: Callable[..., str]) -> None:
    browser, first, second = Browser(), serve(), serve()
    for address in (first, second):
        assert browser.get(address) == 200
    for address in (first, second, first):
        assert browser.get(without_token(address)) == 200


@contextmanager
def another_server() -> Iterator[tuple[str, list[bytes]]]:
    """A server of somebody else's on this machine, which remembers what it is sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_another_server_on_this_machine_is_not_sent_the_cookie(serve: Callable[..., str]) -> None:
    browser = Browser()
    assert browser.get(serve()) == 200
    assert len(list(browser.jar)) == 1
    with another_server() as (address, heard):
        assert browser.get(address) == 200
        assert browser.get(f"{address}static/inspector.js") == 200
    assert len(heard) == 2
    assert not [request for request in heard if b"cookie" in request.lower()]


def test_a_cookie_opens_nothing_without_the_path(serve: Callable[..., str]) -> None:
    """Should another server get at it, it still lacks what only the owner's address bar has."""
    browser, address = Browser(), serve()
    browser.get(address)
    (cookie,) = browser.jar
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=30)
    for path, status in (("/", 401), ("/session", 401), ("/guess/", 401), (urlsplit(address).path, 200)):
        connection.request("GET", path, headers={"Cookie": f"{cookie.name}={cookie.value}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()


@contextmanager
def half_open(address: str, count: int, sent: bytes = HALF) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        port = urlsplit(address).port or 0
        connections = [opened.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(count)]
        for connection in connections:
            try:
                connection.sendall(sent)
            except OSError:
                pass  # it was turned away
        yield connections


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF], ids=["silent", "half a request"])
def test_connections_without_a_whole_request_do_not_keep_the_owner_out(serve: Callable[..., str], sent: bytes) -> None:
    address, browser = serve(), Browser()
    with half_open(address, 210, sent):
        assert browser.get(address) == 200
        with half_open(address, 210, sent):
            assert browser.get(without_token(address)) == 200


def test_half_a_request_is_not_waited_for_long(serve: Callable[..., str]) -> None:
    with half_open(serve(), 5) as connections:
        eventually(lambda: all(map(is_closed, connections)), "the server to close half-open connections")


def test_nor_is_half_of_a_second_one(serve: Callable[..., str]) -> None:
    """After the first answer uvicorn waits for the next request; once that has begun, nobody did."""
    address, browser = serve(), Browser()
    browser.get(address)
    (cookie,) = browser.jar
    parts = urlsplit(address)
    head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie.name}={cookie.value}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", parts.port or 0), 30) as connection:
        connection.sendall(head.encode())
        told = b""
        while b"</html>" not in told:
            told += connection.recv(65536)
        assert told.startswith(b"HTTP/1.1 200")
        connection.sendall(head.encode()[:40])
        eventually(lambda: is_closed(connection), "the server to close it")


def test_a_page_that_listens_is_kept(serve: Callable[..., str]) -> None:
    """A stream of events is a request that was sent whole: it is no connection's, however long it lasts."""
    address, browser = serve(), Browser()
    browser.get(address)
    (cookie,) = browser.jar
    parts = urlsplit(address)
    listener = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=30)
    listener.request("GET", f"{parts.path}live?id=customer-42", headers={"Cookie": f"{cookie.name}={cookie.value}"})
    answer: Any = listener.getresponse()
    assert answer.readline() == b"retry: 2000\n"
    with half_open(address, 210) as connections:
        eventually(lambda: all(map(is_closed, connections)), "the connections to go")
    assert b"changed" in answer.readline() + answer.readline()
    listener.close()


def test_an_inspector_that_is_interrupted_says_that_it_stopped(url: str) -> None:
    # Its parent may ignore the signal, as a shell does for what it begins in the background.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{listen}; from everturn.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", url, "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "the inspector is at" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().splitlines()[-1] == "stopped"
