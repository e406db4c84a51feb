"""The private parts of redis-py that we use: the socket of a connection, and the transport of one in an event loop.

redis-py has no public way to either. docs/decisions/012 says why we need them. test_redis_py.py fails when a release of
redis-py hides them. A connection whose parts are not found is used by redis-py's public methods.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any


def socket_of(connection: Any) -> socket.socket | None:
    """Return the socket of a blocking connection; None if it is not connected, or redis-py hides its socket."""
    return getattr(connection, "_sock", None)


def transport_of(connection: Any) -> asyncio.WriteTransport | None:
    """Return the transport of a connection in an event loop; None if redis-py hides it.

    Raises ConnectionError if the connection has ended since it was made: its streams know, and will not say it again.
    """
    transport: asyncio.WriteTransport | None = getattr(getattr(connection, "_writer", None), "transport", None)
    streams = getattr(connection, "_reader", None)
    has_ended = streams is not None and (streams.at_eof() or streams.exception() is not None)
    if transport is not None and (transport.is_closing() or has_ended):
        raise ConnectionError("the server closed the connection")
    return transport
