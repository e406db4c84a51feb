"""The transport of an event loop; blocking_pool.py has the protocol.

Changes that wait at the same time are sent together: one write and one read for all of them. Every read is sent by
itself, so that a long one delays nobody.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from everturn import telemetry
from everturn.backends._shared.connection_watch import ConnectionWatch
from everturn.backends.redis import errors
from everturn.backends.redis.transport.async_connection import AsyncConnection, RedisPyConnection, own_connection
from everturn.backends.redis.transport.blocking_pool import get_connection, where
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import Command, packed
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError
from everturn.events import Source

BATCHES_AT_ONCE = 2  # to one node: while one is answered, the next is packed
LARGEST_BATCH = 256  # requests


class AsyncNodeConnections(Protocol):
    """Connections to one node, for an event loop."""

    async def take(self, deadline: float) -> AsyncConnection:
        """Return a connection that is ready, with this deadline. Raises MemoryStoreBackendError."""
        ...

    async def give_back(self, connection: AsyncConnection) -> None: ...

    async def drop(self, connection: AsyncConnection) -> None: ...

    async def close(self) -> None: ...


class AsyncPool:
    """A bounded number of connections of our own to one node. A caller who finds all of them busy waits."""

    def __init__(self, node: Node, login: Login, size: int) -> None:
        self._node = node
        self._login = login
        self._free = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection] = []
        self._size = size
        self._closed = False
        self._watch = ConnectionWatch(Source("redis", where(node)))

    async def take(self, deadline: float) -> AsyncConnection:
        if self._free.locked():
            since = time.monotonic()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._free.acquire()
            except TimeoutError as exc:
                raise errors.exhausted(where(self._node), self._size) from exc
            finally:
                self._watch.waited(since)
        else:
            await self._free.acquire()
        try:
            while self._idle:
                idle = self._idle.pop()
                if not idle.is_lost:
                    idle.deadline = deadline
                    return idle
                await idle.disconnect()
            return await own_connection(self._node, self._login, deadline)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            self._watch.lost(exc)
            await self._end()
            errors.raise_as(exc, errors.unsent, where(self._node))

    async def give_back(self, connection: AsyncConnection) -> None:
        if self._watch.lost_at is not None:
            self._watch.answered()
        self._idle.append(connection)
        self._free.release()
        if self._closed:
            await self.close()

    async def drop(self, connection: AsyncConnection) -> None:
        self._watch.lost(sys.exception())
        await self._end(connection)

    async def _end(self, *connections: AsyncConnection) -> None:
        """Disconnect a connection that failed, and the idle ones, which have most likely failed, too."""
        self._free.release()
        gone, self._idle = [*connections, *self._idle], []
        for each in gone:
            await each.disconnect()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().disconnect()


class AsyncClientPool:
    """Connections of a client that was given to us. The client stays its owner's."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def take(self, deadline: float) -> RedisPyConnection:
        try:
            async with asyncio.timeout_at(deadline):
                return RedisPyConnection(await get_connection(self._pool), deadline)
        except Exception as exc:  # noqa: BLE001 - raised again, as what it is
            errors.raise_as(exc, errors.unsent, "Redis")

    async def give_back(self, connection: AsyncConnection) -> None:
        released = self._pool.release(cast("RedisPyConnection", connection).connection)
        if inspect.isawaitable(released):
            await released

    async def drop(self, connection: AsyncConnection) -> None:
        await connection.disconnect()
        await self.give_back(connection)

    async def close(self) -> None:
        pass


class _Request:
    """The commands of one caller. `waiter` gets the replies.

    `settled` says that the replies, or an error, have come: a caller who was cancelled meanwhile may not have noticed.
    """

    __slots__ = ("commands", "deadline", "sent", "settled", "wait", "waiter")

    def __init__(self, commands: Sequence[Command], deadline: float, wait: Command | None) -> None:
        self.commands = commands
        self.deadline = deadline
        self.wait = wait
        self.waiter: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.sent = False
        self.settled = False

    def succeed(self, replies: list[Any]) -> None:
        self.settled = True
        if not self.waiter.done():
            self.waiter.set_result(replies)

    def fail(self, error: Exception) -> None:
        self.settled = True
        if not self.waiter.done():
            if isinstance(error, MemoryStoreBackendError):
                # Each caller gets an error of its own, because store/retries.py writes on it.
                error = MemoryStoreBackendError(*error.args, outcome=error.outcome, transient=error.transient)
            self.waiter.set_exception(error)


class _BatchQueue:
    """Requests to one node that may be sent together.

    While fewer than BATCHES_AT_ONCE are under way, a caller carries its own request: no other task has to wake up.
    Otherwise it waits in the queue, and a task sends all that wait, a batch at a time.
    """

    def __init__(self, node: Node, connections: AsyncNodeConnections) -> None:
        self._node = node
        self._connections = connections
        self._waiting: deque[_Request] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0  # callers and tasks that send
        self._all_done: asyncio.Future[None] | None = None  # what `close` waits for

    async def send(self, commands: Sequence[Command], deadline: float, wait: Command | None) -> list[Any]:
        """Send the commands, alone or with the next batch. A caller who is cancelled before that sends nothing; one who
        is cancelled after it waits for the outcome."""
        request = _Request(commands, deadline, wait)
        if self._under_way < BATCHES_AT_ONCE:
            return await self._carry(request)
        self._waiting.append(request)
        loop = asyncio.get_running_loop()
        timer = loop.call_at(deadline, self._expire, request)
        try:
            return await request.waiter
        except asyncio.CancelledError:
            while request.sent and not request.settled:
                request.waiter = loop.create_future()
                await _outcome(request.waiter)
            raise
        finally:
            timer.cancel()

    async def _carry(self, request: _Request) -> list[Any]:
        """Send the caller's own request, in its own task."""
        if request.deadline <= time.monotonic():
            raise errors.unsent(where(self._node), TimeoutError("the time is up"))
        self._under_way += 1
        cancelled_before = _cancellations()
        try:
            await exchange_batch(self._node, self._connections, [request], request.deadline, awaits_replies=True)
        except MemoryStoreBackendError as exc:
            if _cancellations() > cancelled_before:
                raise asyncio.CancelledError from exc
            raise
        finally:
            self._end_one()
        if _cancellations() > cancelled_before:
            raise asyncio.CancelledError  # it came while the outcome was awaited
        return request.waiter.result()

    def _end_one(self) -> None:
        """Give the place of a sender to those who wait."""
        waiting = self._waiting
        while waiting and waiting[0].waiter.done():  # it was cancelled, or its time is up
            waiting.popleft()
        self._under_way -= 1
        if waiting:
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._send_all())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not self._under_way and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)

    def _expire(self, request: _Request) -> None:
        late = TimeoutError("the time is up")
        request.fail((errors.unanswered if request.sent else errors.unsent)(where(self._node), late))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                if batch:
                    await self._send_batch(batch)
        finally:
            self._end_one()

    def _next_batch(self) -> list[_Request]:
        batch: list[_Request] = []
        while self._waiting and len(batch) < LARGEST_BATCH:
            request = self._waiting.popleft()
            if not request.waiter.done():  # else it was cancelled, or its time is up
                batch.append(request)
        return batch

    async def _send_batch(self, batch: list[_Request]) -> None:
        error: Exception | None = None
        try:
            latest = max(request.deadline for request in batch)
            await exchange_batch(self._node, self._connections, batch, latest, awaits_replies=True)
            telemetry.record(telemetry.COMMIT_SIZE, "redis", len(batch))
        except Exception as exc:  # noqa: BLE001 - every caller of the batch must hear of it
            error = exc
        except asyncio.CancelledError:
            error = errors.closed()
            raise
        finally:
            for request in batch if error else ():
                request.fail(error)  # type: ignore[arg-type]  # there is one

    async def close(self) -> None:
        while self._under_way:
            self._all_done = asyncio.get_running_loop().create_future()
            await self._all_done


def _cancellations() -> int:
    """Return how many cancellations of the current task are not handled yet."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def _outcome(waiter: asyncio.Future[list[Any]]) -> None:
    try:
        await waiter
    except (MemoryStoreBackendError, asyncio.CancelledError):
        pass  # the caller was cancelled, and gets no outcome; cancelled again, it looks again whether there is one


async def exchange_batch(
    node: Node,
    connections: AsyncNodeConnections,
    batch: Sequence[_Request],
    deadline: float,
    *,
    awaits_replies: bool = False,
) -> None:
    """Send all requests of the batch on one connection, and hand the replies over as they come. One WAIT serves all.

    `awaits_replies`: once sent, wait for the replies even if this task is cancelled.
    """
    connection = await connections.take(deadline)
    batch = [request for request in batch if not request.waiter.done()]
    waits = [request.wait for request in batch if request.wait]
    for request in batch:
        request.sent = True
    try:
        commands = [command for request in batch for command in request.commands] + waits[-1:]
        await connection.send(packed(commands), len(commands))
        delayed: list[tuple[_Request, list[Any]]] = []
        for request in batch:
            replies = await connection.receive(len(request.commands), outlasts_cancellation=awaits_replies)
            if request is batch[-1] and not waits:
                await connection.end()  # before the last reply is believed
            if request.wait:
                delayed.append((request, replies))
            else:
                request.succeed(replies)
        reached = await connection.receive(1, outlasts_cancellation=awaits_replies) if delayed else []
        if delayed:
            await connection.end()
        for request, replies in delayed:
            request.succeed(replies + reached)
    except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
        await connections.drop(connection)
        errors.raise_as(exc, errors.unanswered, where(node))
    await connections.give_back(connection)


class AsyncTransport:
    """Belongs to the event loop it is used in."""

    def __init__(self, connections_to: Callable[[Node], AsyncNodeConnections]) -> None:
        self._connections_to = connections_to
        self._connections: dict[Node, AsyncNodeConnections] = {}
        self._queues: dict[Node, _BatchQueue] = {}
        self._closed = False

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,
        wait: Command | None = None,
    ) -> list[Any]:
        if self._closed:
            raise errors.closed()
        if node not in self._queues:
            self._connections[node] = self._connections_to(node)
            self._queues[node] = _BatchQueue(node, self._connections[node])
        if shared:
            return await self._queues[node].send(commands, deadline, wait)
        if deadline <= time.monotonic():
            raise errors.unsent(where(node), TimeoutError("the time is up"))
        request = _Request(commands, deadline, wait)
        await exchange_batch(node, self._connections[node], [request], deadline)
        return request.waiter.result()

    async def close(self) -> None:
        self._closed = True
        for queue in self._queues.values():
            await queue.close()
        for connections in self._connections.values():
            await connections.close()
