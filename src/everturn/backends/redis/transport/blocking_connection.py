"""One blocking connection of our own, on a plain socket.

So every wait ends at the caller's deadline, whatever the server sends: redis-py's connections limit single steps only
(docs/decisions/012). A client that was given to us is used by redis-py's public methods, at the end of this file.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from everturn.backends.redis import errors
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import Command, packed, reply_reader
from everturn.backends.redis.url import Node

LONGEST = 86_400.0  # seconds: the longest time-out that a socket is given, whatever the deadline
CHUNK = 65_536  # bytes asked of the socket at a time


def left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises TimeoutError if it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is up")
    return min(seconds, LONGEST)


class BlockingConnection:
    """A connection to one node, whose every call has a deadline. It connects at the first call, and again when lost.

    `has_sent` says whether a part of the latest commands may have reached the server. There is no `__del__`: Python
    ignores whatever the handler of a signal raises in one.
    """

    def __init__(self, node: Node, login: Login) -> None:
        self.has_sent = False
        self._node = node
        self._login = login
        self._sock: Any = None  # None: not connected
        self._reader: Any = None
        self._chunk = bytearray()
        self._poll: Any = None  # None: the socket has a time-out instead (TLS, or a system without poll)

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        """Connect if need be, send the commands, and read a reply for each; errors of the server come as Refusal.

        Raises OSError or an error of redis-py; disconnect then.
        """
        self.has_sent = False
        if self._sock is not None and self._has_unread():
            self.disconnect()  # we asked nothing: the server closed it, or replies are out of step
        if self._sock is None:
            self._connect(deadline)
        return self._talk(commands, deadline)

    def _talk(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        seconds = self._limit(deadline)
        reader, poll = self._reader, self._poll
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
                seconds = self._limit(deadline)
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
            seconds = self._limit(deadline)

    def disconnect(self) -> None:
        """Close the connection. The next call connects again."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _has_unread(self) -> bool:
        """Say whether there is something to read, or the connection has ended."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):  # TLS sends records of its own, which hold no reply
            return False
        except OSError as exc:
            if errors.interruption(exc):
                raise
        return True

    def _limit(self, deadline: float) -> float:
        """Limit the next step on the socket to the time left. Returns it, in seconds. Raises TimeoutError."""
        seconds = left(deadline)
        if self._poll is None:
            self._sock.settimeout(seconds)
        return seconds

    def _connect(self, deadline: float) -> None:
        """Connect, and log in. Raises OSError, or MemoryStoreBackendError if the server refuses us."""
        sock = connected_socket(self._node, deadline)
        try:
            context = self._login.context()
            if context is not None:
                sock.settimeout(left(deadline))
                sock = context.wrap_socket(sock, server_hostname=self._node[0])
        except BaseException:
            sock.close()
            raise
        self._sock, self._reader, self._chunk, self._poll = sock, reply_reader(), bytearray(CHUNK), None
        if context is None and hasattr(select, "poll"):
            # A socket with a time-out asks the kernel before each step. This one asks only if nothing is there yet.
            sock.settimeout(0)
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)
        try:
            replies = self._talk(self._login.commands, deadline)
        finally:
            self.has_sent = False  # of the caller's commands, nothing was sent
        self._login.check(replies, f"Redis at {self._node[0]}:{self._node[1]}")


def connected_socket(node: Node, deadline: float) -> socket.socket:
    """Connect to the first address of a node that answers. Raises OSError: that of the last address."""
    error: OSError = ConnectionError("its name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(*node, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(left(deadline))
            sock.connect(address)
        except BaseException as exc:
            sock.close()
            if not isinstance(exc, OSError) or errors.interruption(exc):
                raise
            error = exc
        else:
            return sock
    raise error


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


def exchange_by_redis_py(connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Send the commands and read a reply for each, by redis-py's public methods. Raises OutOfStep if there are more."""
    connection.send_packed_command([packed(commands)], check_health=False)
    replies = []
    for _ in commands:
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
