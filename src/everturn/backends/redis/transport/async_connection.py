"""One connection of an event loop. async_pool.py decides who uses it, and for which commands.

Ours reads replies as they come: redis-py's streams copy every reply twice (docs/decisions/012). Connections of a client
that was given to us are used by redis-py's public methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from everturn.backends.redis import errors
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import packed, reply_reader
from everturn.backends.redis.url import Node

IsOver: TypeAlias = Callable[[], bool]
"""Says whether the time is up."""


class AsyncConnection(Protocol):
    """One connection, used by one caller at a time."""

    @property
    def is_lost(self) -> bool:
        """Say whether the connection is known to have ended."""
        ...

    async def send(self, request: bytes, count: int) -> None:
        """Send `count` commands."""
        ...

    async def receive(self, count: int, is_over: IsOver | None = None) -> list[Any]:
        """Read the next `count` replies; errors of the server come as Refusal.

        With `is_over`, a cancellation does not end the wait before the time is up: asyncio.run cancels every task at
        its end, also a task of ours that carries out a change which another task still waits for. Raises OSError or an
        error of redis-py; drop the connection then.
        """
        ...

    async def end(self) -> None:
        """Make sure that no reply is left. Raises OutOfStep if one is."""
        ...

    async def disconnect(self) -> None:
        """Close the connection."""
        ...


async def own_connection(node: Node, login: Login) -> AsyncConnection:
    """Connect to a node, and log in. Raises OSError, or MemoryStoreBackendError if the server refuses us."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(OwnConnection, *node, ssl=login.context())
    try:
        await connection.send(packed(login.commands), len(login.commands))
        login.check(await connection.receive(len(login.commands)), f"Redis at {node[0]}:{node[1]}")
    except BaseException:
        await connection.disconnect()
        raise
    return connection


class RedisPyConnection:
    """Sends and reads by redis-py's public methods."""

    is_lost = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def send(self, request: bytes, count: int) -> None:  # noqa: ARG002 - redis-py counts for itself
        await self.connection.send_packed_command([request], check_health=False)

    async def receive(self, count: int, is_over: IsOver | None = None) -> list[Any]:  # noqa: ARG002 - redis-py's reads end
        return [await self._reply() for _ in range(count)]

    async def end(self) -> None:
        # Older releases, and valkey-py, have it under another name.
        can_read = getattr(self.connection, "can_read", None) or self.connection.can_read_destructive
        try:
            is_more = await can_read()
        except Exception as exc:
            if errors.interruption(exc):
                raise
            return  # the connection has ended since; the replies before that are whole
        if is_more:
            raise errors.OutOfStep

    async def disconnect(self) -> None:
        await self.connection.disconnect(nowait=True)

    async def _reply(self) -> Any:
        try:
            return await self.connection.read_response(disable_decoding=True)
        except Exception as exc:
            if not errors.is_refusal(exc):
                raise
            return errors.refusal(exc)


class OwnConnection(asyncio.Protocol):
    """Sends and reads on the transport of the event loop, with hiredis."""

    def __init__(self) -> None:
        self.is_lost = False
        self._transport: Any = None
        self._reader = reply_reader()
        self._replies: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = 0  # replies that the waiter waits for
        self._due = 0  # replies that are still to come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def send(self, request: bytes, count: int) -> None:
        self._due += count
        self._transport.write(request)

    async def receive(self, count: int, is_over: IsOver | None = None) -> list[Any]:
        while len(self._replies) < count:
            if self.is_lost:
                raise ConnectionError("the server closed the connection")
            self._wanted = count
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                if is_over is None or is_over():
                    raise
            finally:
                self._waiter = None
        replies, self._replies = self._replies[:count], self._replies[count:]
        return replies

    async def end(self) -> None:
        pass  # data_received notices a surplus when it comes

    async def disconnect(self) -> None:
        self._transport.abort()
        await asyncio.shield(self._ended)  # the loop has let go of the socket

    def data_received(self, data: bytes) -> None:
        reader, replies = self._reader, self._replies
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
                self._due -= 1
        except Exception as exc:  # noqa: BLE001 - this is no Redis protocol: the waiter must hear of it
            self._fail(exc)
            return
        if self._due < 0 or (not self._due and reader.has_data()):
            replies.clear()  # nobody can say which reply belongs to which command
            self._fail(errors.OutOfStep())
            return
        if self._waiter is not None and len(replies) >= self._wanted and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the server closed the connection"))
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, exc: Exception) -> None:
        self.is_lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc)
