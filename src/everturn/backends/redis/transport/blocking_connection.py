"""One blocking connection of our own: redis-py connects and logs in, then we send and read on its socket.

So every wait ends at the caller's deadline, and an append does not pay for what redis-py does for commands in general
(docs/decisions/012 has the figures). A client that was given to us is used by redis-py's public methods.
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
from everturn.backends.redis.transport import redis_py, resp
from everturn.backends.redis.transport.resp import Command, packed

LONGEST = 86_400.0  # seconds: the longest time-out that a socket is given, whatever the deadline
CHUNK = 65_536  # bytes asked of the socket at a time


def left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises TimeoutError if it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is up")
    return min(seconds, LONGEST)


class BlockingConnection:
    """A connection of redis-py whose every call has a deadline. It connects at the first call, and again when lost.

    `has_sent` says whether a part of the latest commands may have reached the server.
    """

    def __init__(self, connection: Any) -> None:
        self.has_sent = False
        self._connection = connection
        self._is_connected = False
        self._sock: Any = None  # None also if redis-py hides it
        self._reader: Any = None  # None: redis-py sends and reads for us
        self._chunk = bytearray()
        self._poll: Any = None  # None: the socket has a time-out instead (TLS, or a system without poll)

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        """Connect if need be, send the commands, and read a reply for each; errors of the server come as Refusal.

        Raises OSError or an error of redis-py; disconnect then.
        """
        self.has_sent = False
        if self._is_connected and self._has_unread():
            self.disconnect()  # we asked nothing: the server closed it, or replies are out of step
        seconds = deadline - time.monotonic()
        if seconds <= 0 or not self._is_connected or self._poll is None:
            seconds = self._ready(deadline)
        reader, poll = self._reader, self._poll
        if reader is None:
            self.has_sent = True
            return exchange_by_redis_py(self._connection, commands, lambda: self._limit_read(deadline))
        sock, chunk = self._sock, self._chunk
        request = packed(commands)
        self.has_sent = True
        if poll is None:
            sock.sendall(request)
        else:
            try:
                sent = sock.send(request)
            except BlockingIOError:
                sent = 0
            if sent < len(request):
                seconds = _send_rest(sock, memoryview(request)[sent:], deadline)
        replies: list[Any] = []
        while True:
            if poll is not None and not poll.poll(min(seconds, LONGEST) * 1000):
                raise TimeoutError("timed out")
            try:
                length = sock.recv_into(chunk)
            except BlockingIOError:  # poll may be wrong about a socket that has something to read
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

    def disconnect(self) -> None:
        """Close the connection. The next call connects again."""
        self._is_connected, self._sock = False, None
        self._connection.disconnect()

    def _has_unread(self) -> bool:
        """Say whether there is something to read, or the connection has ended."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        if self._reader is None:
            return bool(self._connection.can_read(timeout=0))
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):  # TLS sends records of its own, which hold no reply
            return False
        except OSError as exc:
            if errors.interruption(exc):
                raise
        return True

    def _ready(self, deadline: float) -> float:
        """Connect if need be, and limit the next step on the socket to the time left. Returns it, in seconds."""
        seconds = left(deadline)
        if not self._is_connected:
            self._connection.socket_timeout = self._connection.socket_connect_timeout = seconds
            self._connection.connect()
            self._take_socket()
            self._is_connected = True
            seconds = left(deadline)
        if self._poll is None and self._sock is not None:
            self._sock.settimeout(seconds)
        return seconds

    def _take_socket(self) -> None:
        self._sock = redis_py.socket_of(self._connection)
        self._reader = self._poll = None
        if resp.reply_reader and self._sock is not None:
            self._reader, self._chunk = resp.reply_reader(), bytearray(CHUNK)
            if type(self._sock) is socket.socket and hasattr(select, "poll"):
                # A socket with a time-out asks the kernel before each step. This one asks only if nothing is there yet.
                self._sock.settimeout(0)
                self._poll = select.poll()
                self._poll.register(self._sock, select.POLLIN)

    def _limit_read(self, deadline: float) -> None:
        """Limit redis-py's next read to the time left."""
        seconds = self._ready(deadline)
        if self._sock is None and not self._connection.can_read(timeout=seconds):
            raise TimeoutError("timed out")


def _send_rest(sock: Any, request: memoryview, deadline: float) -> float:
    """Send the part of a request that the kernel did not take at once. Returns the seconds left."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while request:
        if not poll.poll(left(deadline) * 1000):
            raise TimeoutError("timed out")
        with suppress(BlockingIOError):
            request = request[sock.send(request) :]
    return left(deadline)


def exchange_by_redis_py(
    connection: Any, commands: Sequence[Command], before_reply: Callable[[], object] | None = None
) -> list[Any]:
    """Send the commands and read a reply for each, by redis-py's public methods. Raises OutOfStep if there are more."""
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
        return False  # the connection has ended since; the replies before that are whole
