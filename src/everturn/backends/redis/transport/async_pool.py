"""Sending commands and getting replies in an event loop; blocking_pool.py says what is promised.

Changes that wait at the same time travel together: one write, one read, for all of them. Reads go by themselves, so
that a long one holds nobody up.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everturn.backends.redis import errors
from everturn.backends.redis.transport.async_connection import LentLine, LoopLine, over
from everturn.backends.redis.transport.blocking_pool import get_connection, where
from everturn.backends.redis.transport.resp import Command, packed
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError

LANES = 2  # batches under way to one node: while one is answered, the next is packed
LARGEST_BATCH = 256


class LoopLender(Protocol):
    """Lends connections to one node."""

    async def take(self, deadline: float) -> LoopLine:
        """A connection that is ready. Raises MemoryStoreBackendError."""
        ...

    async def give_back(self, line: LoopLine) -> None: ...

    async def drop(self, line: LoopLine) -> None: ...

    async def close(self) -> None: ...


class LoopPool:
    """A bounded number of connections of our own."""

    def __init__(self, node: Node, make: Callable[[Node], Any], size: int) -> None:
        self._node = node
        self._make = make
        self._free = asyncio.Semaphore(size)
        self._idle: list[LoopLine] = []
        self._size = size
        self._closed = False

    async def take(self, deadline: float) -> LoopLine:
        if self._free.locked():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._free.acquire()
            except TimeoutError as exc:
                raise errors.exhausted(where(self._node), self._size) from exc
        else:
            await self._free.acquire()
        connection: Any = None
        try:
            while self._idle:
                line = self._idle.pop()
                if not line.is_lost:
                    return line
                connection = line.connection
                await connection.disconnect(nowait=True)
            connection = self._make(self._node)
            async with asyncio.timeout_at(deadline):
                await connection.connect()
            return over(connection)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            await self._end(connection)
            errors.raise_as(exc, errors.unsent, where(self._node))

    async def give_back(self, line: LoopLine) -> None:
        self._idle.append(line)
        self._free.release()
        if self._closed:
            await self.close()

    async def drop(self, line: LoopLine) -> None:
        await self._end(line.connection)

    async def _end(self, connection: Any) -> None:
        """The others will fail next."""
        self._free.release()
        gone, self._idle = [*filter(None, [connection]), *[line.connection for line in self._idle]], []
        for each in gone:
            await each.disconnect(nowait=True)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().connection.disconnect()


class LoopBorrowed:
    """Connections of a client that was given to us, which stays its owner's."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def take(self, deadline: float) -> LoopLine:
        try:
            async with asyncio.timeout_at(deadline):
                return LentLine(await get_connection(self._pool))
        except Exception as exc:  # noqa: BLE001 - raised again, as what it is
            errors.raise_as(exc, errors.unsent, "Redis")

    async def give_back(self, line: LoopLine) -> None:
        released = self._pool.release(line.connection)
        if inspect.isawaitable(released):
            await released

    async def drop(self, line: LoopLine) -> None:
        await line.connection.disconnect(nowait=True)
        await self.give_back(line)

    async def close(self) -> None:
        pass


class _Letter:
    """Commands of one caller on their way. `waiter` hears of the replies; `settled` says that they have come, also to
    a caller who was cancelled and has not yet noticed."""

    __slots__ = ("commands", "deadline", "sent", "settled", "wait", "waiter")

    def __init__(self, commands: Sequence[Command], deadline: float, wait: Command | None) -> None:
        self.commands = commands
        self.deadline = deadline
        self.wait = wait
        self.waiter: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.sent = False
        self.settled = False

    def deliver(self, replies: list[Any]) -> None:
        self.settled = True
        if not self.waiter.done():
            self.waiter.set_result(replies)

    def fail(self, error: Exception) -> None:
        self.settled = True
        if not self.waiter.done():
            if isinstance(error, MemoryStoreBackendError):
                # Each caller gets an error of its own: the retry loop above writes on it.
                error = MemoryStoreBackendError(*error.args, outcome=error.outcome, transient=error.transient)
            self.waiter.set_exception(error)


class _Post:
    """What waits to be sent to one node."""

    def __init__(self, node: Node, lender: LoopLender) -> None:
        self._node = node
        self._lender = lender
        self._waiting: deque[_Letter] = deque()
        self._lanes: set[asyncio.Task[None]] = set()

    async def send(self, commands: Sequence[Command], deadline: float, wait: Command | None) -> list[Any]:
        """Send as soon as a lane is free. Cancelled before that, nothing is sent; after it, the outcome is awaited."""
        loop = asyncio.get_running_loop()
        letter = _Letter(commands, deadline, wait)
        self._waiting.append(letter)
        if len(self._lanes) < LANES:
            lane = loop.create_task(self._carry())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        timer = loop.call_at(deadline, self._expire, letter)
        try:
            return await letter.waiter
        except asyncio.CancelledError:
            while letter.sent and not letter.settled:
                letter.waiter = loop.create_future()
                await _outcome(letter.waiter)
            raise
        finally:
            timer.cancel()

    def _expire(self, letter: _Letter) -> None:
        late = TimeoutError("the time is up")
        letter.fail((errors.unanswered if letter.sent else errors.unsent)(where(self._node), late))

    async def _carry(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            if batch:
                await self._carry_batch(batch)

    def _next_batch(self) -> list[_Letter]:
        batch: list[_Letter] = []
        while self._waiting and len(batch) < LARGEST_BATCH:
            letter = self._waiting.popleft()
            if not letter.waiter.done():  # else withdrawn
                batch.append(letter)
        return batch

    async def _carry_batch(self, batch: list[_Letter]) -> None:
        error: Exception | None = None
        try:
            latest = max(letter.deadline for letter in batch)
            await converse(self._node, self._lender, batch, latest, is_seen_through=True)
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            error = exc
        except asyncio.CancelledError:
            error = errors.closed()
            raise
        finally:
            for letter in batch if error else ():
                letter.fail(error)  # type: ignore[arg-type]  # there is one

    async def close(self) -> None:
        for lane in list(self._lanes):
            await asyncio.wait([lane])


async def _outcome(waiter: asyncio.Future[list[Any]]) -> None:
    try:
        await waiter
    except (MemoryStoreBackendError, asyncio.CancelledError):
        pass  # whatever it is, the caller has gone; cancelled again: look again


async def converse(
    node: Node, lender: LoopLender, batch: Sequence[_Letter], deadline: float, *, is_seen_through: bool = False
) -> None:
    """Send all of the batch on one connection, and deliver the replies as they come. One WAIT does for all of it.

    `is_seen_through`: once sent, the replies are waited for even if this task is cancelled.
    """
    line = await lender.take(deadline)
    batch = [letter for letter in batch if not letter.waiter.done()]
    waits = [letter.wait for letter in batch if letter.wait]
    for letter in batch:
        letter.sent = True
    try:
        async with asyncio.timeout_at(deadline) as limit:
            is_over = limit.expired if is_seen_through else None
            commands = [command for letter in batch for command in letter.commands] + waits[-1:]
            await line.send(packed(commands), len(commands))
            delayed: list[tuple[_Letter, list[Any]]] = []
            for letter in batch:
                replies = await line.receive(len(letter.commands), is_over)
                if letter is batch[-1] and not waits:
                    await line.end()  # before it is believed
                if letter.wait:
                    delayed.append((letter, replies))
                else:
                    letter.deliver(replies)
            reached = await line.receive(1, is_over) if delayed else []
            if delayed:
                await line.end()
            for letter, replies in delayed:
                letter.deliver(replies + reached)
    except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
        await lender.drop(line)
        errors.raise_as(exc, errors.unanswered, where(node))
    await lender.give_back(line)


class LoopLines:
    """Belongs to the event loop it is used in."""

    def __init__(self, lender: Callable[[Node], LoopLender]) -> None:
        self._lender = lender
        self._lenders: dict[Node, LoopLender] = {}
        self._posts: dict[Node, _Post] = {}
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
        if node not in self._posts:
            self._lenders[node] = self._lender(node)
            self._posts[node] = _Post(node, self._lenders[node])
        if shared:
            return await self._posts[node].send(commands, deadline, wait)
        if deadline <= time.monotonic():
            raise errors.unsent(where(node), TimeoutError("the time is up"))
        letter = _Letter(commands, deadline, wait)
        await converse(node, self._lenders[node], [letter], deadline)
        return letter.waiter.result()

    async def close(self) -> None:
        self._closed = True
        for post in self._posts.values():
            await post.close()
        for lender in self._lenders.values():
            await lender.close()
