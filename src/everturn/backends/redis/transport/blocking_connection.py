"""One blocking connection of our own: redis-py connects it and logs in, then we talk over its socket ourselves.

So every wait has a limit of its own, and an append does not pass through what redis-py does for commands in general.
Connections that are borrowed from a client are talked over by redis-py, in `speak`.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from everturn.backends.redis import errors
from everturn.backends.redis.transport import resp
from everturn.backends.redis.transport.resp import Command, packed

LONGEST = 86_400.0  # seconds that a socket is told to wait, where the deadline is no deadline
CHUNK = 65_536  # bytes that are asked of the socket at a time


def left(deadline: float) -> float:
    """The seconds until the deadline. Raises TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is up")
    return min(seconds, LONGEST)


class Limited:
    """A connection that is told how long it may take, call by call. Mixed into one of redis-py's.

    `has_sent`: whether something of the latest conversation may have reached the server.
    """

    _sock: Any
    connect: Callable[[], None]
    disconnect: Callable[[], None]
    can_read: Callable[..., bool]
    has_sent = False
    _reader: Any = None
    _chunk: bytearray
    _wait: Any = None

    def converse(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        """Be connected, send the commands, and read a reply for each.

        Raises what redis-py raises, OSError; then disconnect.
        """
        self.has_sent = False
        if self._sock is not None and self._has_news():
            self.disconnect()  # nothing was asked: it was closed, or is out of step
        seconds = deadline - time.monotonic()
        if seconds <= 0 or self._sock is None or self._wait is None:
            seconds = self._ready(deadline)
        reader, wait = self._reader, self._wait
        if reader is None:
            self.has_sent = True
            return speak(self, commands, lambda: self._ready(deadline))
        sock, chunk = self._sock, self._chunk
        request = packed(commands)
        self.has_sent = True
        if wait is None:
            sock.sendall(request)
        else:
            try:
                sent = sock.send(request)
            except BlockingIOError:
                sent = 0
            if sent < len(request):
                seconds = _send_all(sock, memoryview(request)[sent:], deadline)
        replies: list[Any] = []
        while True:
            if wait is not None and not wait.poll(min(seconds, LONGEST) * 1000):
                raise TimeoutError("timed out")
            try:
                length = sock.recv_into(chunk)
            except BlockingIOError:  # the kernel may have been wrong about it
                seconds = self._ready(deadline)
                continue
            if not length:
                raise ConnectionError("the server closed the connection")
            reader.feed(chunk, 0, length)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
            if len(replies) >= len(commands):
                if len(replies) > len(commands) or reader.has_data():
                    raise errors.OutOfStep
                return replies
            seconds = self._ready(deadline)

    def _has_news(self) -> bool:
        """Whether there is something to read, or the connection has ended."""
        if self._wait is not None:
            return bool(self._wait.poll(0))
        if self._reader is None:
            return bool(self.can_read(timeout=0))
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):  # TLS has news of its own, which are none for us
            return False
        except OSError as exc:
            if errors.interruption(exc):
                raise
        return True

    def _ready(self, deadline: float) -> float:
        """Be connected, and wait no longer than this for what comes next: so many seconds."""
        seconds = left(deadline)
        if self._sock is None:
            self.socket_timeout = self.socket_connect_timeout = seconds
            self.connect()
            self._begin()
            seconds = left(deadline)
        if self._wait is None:
            self._sock.settimeout(seconds)
        return seconds

    def _begin(self) -> None:
        self._wait = None
        if resp.reply_reader:
            self._reader, self._chunk = resp.reply_reader(), bytearray(CHUNK)
            if type(self._sock) is socket.socket and hasattr(select, "poll"):
                # A socket with a time-out asks the kernel before each step; this one only where there is nothing yet.
                self._sock.settimeout(0)
                self._wait = select.poll()
                self._wait.register(self._sock, select.POLLIN)


def _send_all(sock: Any, request: memoryview, deadline: float) -> float:
    """Send what the kernel did not take at once. The seconds that are left then."""
    wait = select.poll()
    wait.register(sock, select.POLLOUT)
    while request:
        if not wait.poll(left(deadline) * 1000):
            raise TimeoutError("timed out")
        with suppress(BlockingIOError):
            request = request[sock.send(request) :]
    return left(deadline)


def speak(connection: Any, commands: Sequence[Command], before_reply: Callable[[], object] | None = None) -> list[Any]:
    """Send the commands and read a reply for each, by redis-py's own means. Raises OutOfStep if there are more."""
    connection.send_packed_command([packed(commands)], check_health=False)
    replies = []
    for _ in commands:
        if before_reply:
            before_reply()
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except Exception as exc:
            if not errors.is_refusal(exc):
                raise
            replies.append(errors.refusal(exc))
    if _has_more(connection):
        raise errors.OutOfStep
    return replies


def _has_more(connection: Any) -> bool:
    try:
        return bool(connection.can_read(timeout=0))
    except Exception as exc:
        if errors.interruption(exc):
            raise
        return False  # it has ended since: what was answered before was answered
