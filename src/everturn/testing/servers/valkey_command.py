"""Sends one command to a Valkey server over RESP: enough to form a cluster without a driver.

Each command has a connection of its own.
"""

from __future__ import annotations

import socket
from typing import BinaryIO, TypeAlias

from everturn.testing.servers.binaries import LOOPBACK, ServerError

Reply: TypeAlias = "str | int | list[Reply] | None"

_PATIENCE = 5.0


class CommandError(ServerError):
    """A server's error reply, such as `LOADING ...` or `OOM ...`."""


def command(port: int, words: tuple[str | int, ...], *, password: str | None = None) -> Reply:
    """Send one command on a connection of its own, return the reply. Raises CommandError, or OSError if none comes."""
    with (
        socket.create_connection((LOOPBACK, port), timeout=_PATIENCE) as connection,
        connection.makefile("rb") as replies,
    ):
        if password is not None:
            connection.sendall(_encode(("AUTH", password)))
            _decode(replies)
        connection.sendall(_encode(words))
        return _decode(replies)


def _encode(words: tuple[str | int, ...]) -> bytes:
    encoded = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)


def _decode(replies: BinaryIO) -> Reply:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection before its reply was complete")
    kind, rest = line[:1], line[1:-2].decode(errors="replace")
    if kind == b"-":
        raise CommandError(rest)
    if kind == b"+":
        return rest
    size = int(rest)
    if kind == b":":
        return size
    if size < 0:
        return None
    if kind == b"*":
        return [_decode(replies) for _ in range(size)]
    return replies.read(size + 2)[:-2].decode(errors="replace")
