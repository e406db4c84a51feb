"""Talking over one connection of an event loop. Who gets which connection, and what goes over it, is in async_pool.py.

redis-py connects our own and logs in; then we take its transport over: its streams copy every reply twice, and take a
hundred microseconds of an append. Connections that are borrowed from a client are talked over by redis-py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from everturn.backends.redis import errors
from everturn.backends.redis.transport import resp

IsOver: TypeAlias = Callable[[], bool]
"""Whether the time is up."""


class LoopLine(Protocol):
    """One connection, with one caller at a time."""

    connection: Any  # redis-py's

    @property
    def is_lost(self) -> bool:
        """Whether it is known that nothing can be sent any more."""
        ...

    async def send(self, packed: bytes, count: int) -> None:
        """Send so many commands."""
        ...

    async def receive(self, count: int, is_over: IsOver | None = None) -> list[Any]:
        """The next replies, errors of the server as Refusal. Raises OSError or what redis-py raises; then drop it.

        With `is_over`, a cancellation does not end the wait before the time is up. Whoever ends an event loop cancels
        every task, also those of ours that see to a change on behalf of another task, which waits for the outcome.
        """
        ...

    async def end(self) -> None:
        """All replies were received. Raises OutOfStep if there are more."""
        ...


def over(connection: Any) -> LoopLine:
    """A line over a connection of our own that has just been made. Raises ConnectionError if it has ended since."""
    # redis-py has no door to its transport. Should it hide it elsewhere one day, it talks for us again.
    transport = getattr(getattr(connection, "_writer", None), "transport", None)
    if not resp.reply_reader or not transport:
        return LentLine(connection)
    # What redis-py's streams have heard is not told again: the end of a connection may have come before we listen.
    streams = getattr(connection, "_reader", None)
    if transport.is_closing() or (streams is not None and (streams.at_eof() or streams.exception() is not None)):
        raise ConnectionError("the server closed the connection")
    return OwnLine(connection, transport)


class LentLine:
    """By redis-py's own means."""

    is_lost = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def send(self, packed: bytes, count: int) -> None:  # noqa: ARG002 - redis-py counts for itself
        await self.connection.send_packed_command([packed], check_health=False)

    async def receive(self, count: int, is_over: IsOver | None = None) -> list[Any]:  # noqa: ARG002 - redis-py's reads end
        return [await self._reply() for _ in range(count)]

    async def end(self) -> None:
        # By another name where it is older, and in valkey-py.
        can_read = getattr(self.connection, "can_read", None) or self.connection.can_read_destructive
        try:
            is_more = await can_read()
        except Exception as exc:
            if errors.interruption(exc):
                raise
            return  # it has ended since: what was answered before was answered
        if is_more:
            raise errors.OutOfStep

    async def _reply(self) -> Any:
        try:
            return await self.connection.read_response(disable_decoding=True)
        except Exception as exc:
            if not errors.is_refusal(exc):
                raise
            return errors.refusal(exc)


class OwnLine(asyncio.Protocol):
    """By what the transport hands over, and hiredis."""

    def __init__(self, connection: Any, transport: asyncio.WriteTransport) -> None:
        self.connection = connection
        self.is_lost = False
        self._transport = transport
        self._streams = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._reader: Any = resp.reply_reader() if resp.reply_reader else None
        self._replies: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None
        self._wanted = 0
        self._due = 0  # replies that are still to come

    async def send(self, packed: bytes, count: int) -> None:
        self._due += count
        self._transport.write(packed)

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
        pass  # it is noticed when it comes

    def data_received(self, data: bytes) -> None:
        reader, replies = self._reader, self._replies
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
                self._due -= 1
        except Exception as exc:  # noqa: BLE001 - no protocol we know: whoever waits must hear of it
            self._fail(exc)
            return
        if self._due < 0 or (not self._due and reader.has_data()):
            replies.clear()  # which of them is whose cannot be told
            self._fail(errors.OutOfStep())
            return
        if self._waiter is not None and len(replies) >= self._wanted and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the server closed the connection"))
        self._streams.connection_lost(exc)  # redis-py waits for that when it disconnects

    def _fail(self, exc: Exception) -> None:
        self.is_lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc)
