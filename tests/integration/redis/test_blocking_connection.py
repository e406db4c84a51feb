"""A blocking connection: what the kernel does not take at once is sent in parts, and no wait outlasts the deadline."""

from __future__ import annotations

import select
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
import redis

from everturn import MemoryStoreBackendError
from everturn.backends.redis.errors import OutOfStep
from everturn.backends.redis.transport import blocking_connection
from everturn.backends.redis.transport.blocking_connection import LONGEST, BlockingConnection
from everturn.backends.redis.transport.blocking_pool import BlockingPool, ClientPool
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import packed

LARGE = 4 * 2**20  # more than the kernel takes at once


NODE = ("127.0.0.1", 0)
NOBODY = Login(None, None)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BlockingConnection, socket.socket]]:
    """A connection, and the other end of its socket, which the test holds as the server."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(blocking_connection, "connected_socket", lambda *_: ours)
    with ours, theirs:
        connection = BlockingConnection(NODE, NOBODY)
        logged_in(connection, theirs)
        yield connection, theirs


def logged_in(connection: BlockingConnection, server: socket.socket) -> None:
    """Connect, and take the first words away, so that the test sees its own commands only."""
    server.sendall(b"+OK\r\n")
    connection._connect(time.monotonic() + 30)
    assert read(server, len(packed(NOBODY.commands))) == packed(NOBODY.commands)


def talk(connection: BlockingConnection, *commands: Any, seconds: float = 30) -> list[Any]:
    deadline = time.monotonic() + seconds
    return connection.exchange(commands, deadline)


def read(sock: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = sock.recv(min(length, 50_000))
        assert part
        length -= len(part)
        parts.append(part)
    return b"".join(parts)


def answered(
    connection: BlockingConnection, server: socket.socket, answer: bytes, seconds: float = 30, ahead: int = 0
) -> list[Any]:
    """Ask PING, which is answered so. `ahead`: bytes that come before it."""

    def serve() -> None:
        read(server, ahead + len(packed([("PING",)])))
        server.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        return talk(connection, ("PING",), seconds=seconds)
    finally:
        thread.join()


@pytest.mark.parametrize("surplus", [b"+PONG\r\n", b"+PO", b":1\r\n:2\r\n"])
def test_more_replies_than_commands_are_believed_by_nobody(
    ends: tuple[BlockingConnection, socket.socket], surplus: bytes
) -> None:
    connection, server = ends
    with pytest.raises(OutOfStep):
        answered(connection, server, b"+PONG\r\n" + surplus)


@pytest.mark.parametrize("unasked", [b"+PONG\r\n", b"+PO", b"-ERR closing\r\n", None])
def test_a_connection_on_which_something_came_unasked_is_made_anew(
    unasked: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that the server has closed: nothing was sent yet, so nothing is in doubt."""
    first, at_first = socket.socketpair()
    second, at_second = socket.socketpair()
    with first, at_first, second, at_second:
        sockets = [second, first]
        monkeypatch.setattr(blocking_connection, "connected_socket", lambda *_: sockets.pop())
        connection = BlockingConnection(NODE, NOBODY)
        logged_in(connection, at_first)
        assert answered(connection, at_first, b"+PONG\r\n") == [b"PONG"]
        if unasked is None:
            at_first.close()
        else:
            at_first.sendall(unasked)
        at_second.sendall(b"+OK\r\n")  # to the first words
        ahead = len(packed(NOBODY.commands))
        assert answered(connection, at_second, b"+RIGHT\r\n", ahead=ahead) == [b"RIGHT"]


class Stray(socketserver.BaseRequestHandler):
    """Counts PINGs. Answers the second twice; before the fourth, something comes unasked."""

    def handle(self) -> None:
        commands = hiredis.Reader()
        while received := self.request.recv(65_536):
            commands.feed(received)
            while (command := commands.gets()) is not False:
                if command[0] != b"PING":
                    self.request.sendall(b"+OK\r\n")
                    continue
                self.server.asked += 1
                stray = b"+STRAY\r\n" if self.server.asked == 2 else b""
                self.server.latest = self.request
                self.request.sendall(b"+%d\r\n" % self.server.asked + stray)


@pytest.mark.parametrize("kind", ["ours", "borrowed"])
def test_a_stream_of_replies_that_is_out_of_step_is_not_believed(kind: str) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stray) as server:
        server.daemon_threads = True
        server.asked = 0  # type: ignore[attr-defined]  # ours
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        node = server.server_address
        client = redis.Redis(host=node[0], port=node[1], max_connections=1, protocol=2)
        pool: Any = BlockingPool(node, NOBODY, 1) if kind == "ours" else ClientPool(client.connection_pool)
        heard: list[Any] = []
        for number in range(4):
            if number == 3:
                server.latest.sendall(b"+STRAY\r\n")  # type: ignore[attr-defined]  # as above
                ours = kind == "ours"
                idle = pool._pool._idle[-1].item if ours else client.connection_pool._available_connections[-1]
                assert select.select([idle._sock], [], [], 30)[0], "it never came"
            try:
                heard.append(pool.exchange([("PING",)], time.monotonic() + 30))
            except MemoryStoreBackendError as exc:
                heard.append(exc.outcome)
        pool.close()
        client.close()
        server.shutdown()
    assert heard == [[b"1"], "unknown", [b"3"], [b"4"]]


def test_a_command_larger_than_the_kernel_takes_arrives_whole(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends
    command = ("SET", "a", bytes(range(256)) * (LARGE // 256))
    seen: list[bytes] = []

    def serve() -> None:
        time.sleep(0.05)  # until the connection has to wait
        seen.append(read(server, len(packed([command]))))
        server.sendall(b"+OK\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    assert talk(connection, command) == [b"OK"]
    thread.join()
    assert seen == [packed([command])]


def test_a_server_that_reads_nothing_is_waited_for_until_the_deadline(
    ends: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = ends
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        talk(connection, ("SET", "a", b"x" * LARGE), seconds=0.2)
    assert time.monotonic() - begun >= 0.2


def test_a_server_that_answers_nothing_is_waited_for_until_the_deadline(
    ends: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = ends
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        talk(connection, ("PING",), seconds=0.2)
    assert time.monotonic() - begun >= 0.2


def test_signals_do_not_make_the_wait_longer(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, _ = ends
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    begun = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            talk(connection, ("PING",), seconds=0.3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < 10  # it would wait for ever, each time anew


def test_an_answer_in_parts_is_put_together(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends
    answer = b"$5\r\nabcde\r\n:7\r\n"

    def serve() -> None:
        read(server, len(packed([("GET", "a"), ("INCR", "b")])))
        for place in range(len(answer)):
            server.sendall(answer[place : place + 1])
            time.sleep(0.002)

    thread = threading.Thread(target=serve)
    thread.start()
    assert talk(connection, ("GET", "a"), ("INCR", "b")) == [b"abcde", 7]
    thread.join()


def test_a_server_that_drips_does_not_outlast_the_deadline(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends
    stop = threading.Event()

    def serve() -> None:
        read(server, len(packed([("GET", "a")])))
        server.sendall(b"$1000000\r\n")
        while not stop.wait(0.01):
            server.sendall(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            talk(connection, ("GET", "a"), seconds=0.3)
    finally:
        stop.set()
        thread.join()


def test_a_server_that_hangs_up_is_an_error(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends

    def serve() -> None:
        read(server, len(packed([("PING",)])))
        server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(OSError, match=r"closed|Broken pipe|reset"):
        talk(connection, ("PING",))
    thread.join()
    assert connection.has_sent


def test_a_deadline_that_is_none_is_a_day(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends
    for _ in range(3):
        assert answered(connection, server, b"+PONG\r\n", seconds=LONGEST * 1000) == [b"PONG"]
        assert connection.has_sent


def test_no_time_is_an_error_before_anything_is_sent(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, server = ends
    with pytest.raises(TimeoutError):
        talk(connection, ("PING",), seconds=0)
    assert not connection.has_sent
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.recv(1)
