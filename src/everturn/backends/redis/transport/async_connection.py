"""One connection of an event loop. async_pool.py decides who uses it, and for which commands.

Ours reads replies as they come: redis-py's streams copy every reply twice (docs/decisions/012). Connections of a client
that was given to us are used by redis-py's public methods.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from everturn.backends._shared.deadline_watch import DeadlineWatch
from everturn.backends.redis import errors
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import packed, reply_reader
from everturn.backends.redis.url import Node


class AsyncConnection(Protocol):
    """One connection, used by one caller at a time. At its `deadline` every wait ends, with TimeoutError."""

    deadline: float

    @property
    def is_lost(self) -> bool:
        """Say whether the connection is known to have ended."""
        ...

    async def send(self, request: bytes, count: int) -> None:
        """Send `count` commands."""
        ...

    async def receive(self, count: int, *, outlasts_cancellation: bool = False) -> list[Any]:
        """Read the next `count` replies; errors of the server come as Refusal.

        `outlasts_cancellation`: only the deadline ends the wait. asyncio.run cancels every task at its end, also a task
        of ours that carries out a change which another task still waits for. Raises OSError or an error of redis-py;
        drop the connection then.
        """
        ...

    async def end(self) -> None:
        """Make sure that no reply is left. Raises OutOfStep if one is."""
        ...

    async def disconnect(self) -> None:
        """Close the connection."""
        ...


async def own_connection(node: Node, login: Login, deadline: float) -> AsyncConnection:
    """Connect to a node, and log in. Raises OSError, or MemoryStoreBackendError if the server refuses us."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout_at(deadline):
        _, connection = await loop.create_connection(OwnConnection, *node, ssl=login.context())
    connection.deadline = deadline
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

    def __init__(self, connection: Any, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline

    async def send(self, request: bytes, count: int) -> None:  # noqa: ARG002 - redis-py counts for itself
        async with asyncio.timeout_at(self.deadline):
            await self.connection.send_packed_command([request], check_health=False)

    async def receive(
        self,
        count: int,
        *,
        outlasts_cancellation: bool = False,  # noqa: ARG002 - redis-py's reads end
    ) -> list[Any]:
        async with asyncio.timeout_at(self.deadline):
            return [await self._reply() for _ in range(count)]

    async def end(self) -> None:
        # Older releases, and valkey-py, have it under another name.
        can_read = getattr(self.connection, "can_read", None) or self.connection.can_read_destructive
        async with asyncio.timeout_at(self.deadline):
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
        self.deadline = 0.0
        self._deadlines = DeadlineWatch(self._expire)  # as asyncio.timeout_at, without a timer for each call
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

    async def receive(self, count: int, *, outlasts_cancellation: bool = False) -> list[Any]:
        while len(self._replies) < count:
            if self.is_lost:
                raise ConnectionError("the server closed the connection")
            self._wanted = count
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            self._deadlines.add(waiter, self.deadline)
            try:
                await waiter
            except asyncio.CancelledError:
                if not outlasts_cancellation:
                    raise
            finally:
                self._deadlines.remove(waiter)
                self._waiter = None
        replies, self._replies = self._replies[:count], self._replies[count:]
        return replies

    async def end(self) -> None:
        pass  # data_received notices a surplus when it comes

    async def disconnect(self) -> None:
        self._deadlines.close()
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

    def _expire(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError("timed out"))

    def _fail(self, exc: Exception) -> None:
        self.is_lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc)
