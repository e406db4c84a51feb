"""Sends one statement and brings its rows back: blocking or awaited, over a pool of ours or a client we were given.

The backend is written once against `Executor`; which statement means what is its business. Each statement is a
transaction of its own (autocommit), so any connection will do, also behind a PgBouncer that pools transactions.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import msgspec
from psycopg import pq
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName

from everturn.backends.postgres import arrays, errors
from everturn.backends.postgres.timed_connections import (
    TimedAsyncConnection,
    TimedConnection,
    async_cursor_on,
    cursor_on,
)
from everturn.errors import InvalidInput

Rows: TypeAlias = list[Any]  # tuples; a statement and its reader know the columns

# A prepared statement that the server does not know, or knows as another: a pooler is in between after all. Nothing was
# carried out; the store sends it again, and this connection prepares nothing any more.
_NOT_PREPARED = (InvalidSqlStatementName, DuplicatePreparedStatement)


class SqlCall(msgspec.Struct, frozen=True, gc=False):
    """A statement with its parameters. `writes`: it may change something, so an unanswered one leaves a doubt.

    `prepares`: it is sent so often that it is prepared, once a connection of ours.
    """

    statement: str
    parameters: tuple[Any, ...] = ()
    writes: bool = False
    prepares: bool = False


class Executor(Protocol):
    """Runs calls. Raises MemoryStoreBackendError, saying whether the call may have been carried out."""

    name: str

    async def run(self, call: SqlCall, deadline: float) -> Rows: ...

    async def run_script(self, scripts: list[SqlCall], deadline: float) -> Rows:
        """Run these as one transaction; the rows are those of the last. For migrations."""
        ...

    async def close(self) -> None: ...


# --- blocking --------------------------------------------------------------------------------------------------------


class ConnectionSource(Protocol):
    """Lends blocking connections: connections.TimedPool, or GivenClient."""

    def take(self, deadline: float) -> Any: ...

    def give_back(self, connection: Any) -> None: ...

    def close(self) -> None: ...


class BlockingExecutor:
    """Runs calls in the calling thread; its coroutines never suspend. Safe to share between threads."""

    def __init__(self, source: ConnectionSource, name: str) -> None:
        self._source = source
        self.name = name

    async def run(self, call: SqlCall, deadline: float) -> Rows:
        with errors.translated(self.name) as fault:
            connection = self._source.take(deadline)
            try:
                cursor = cursor_on(connection)
                fault.sent = call.writes
                is_ours = type(connection) is TimedConnection
                cursor.execute(call.statement, call.parameters, prepare=call.prepares and is_ours)
                return cursor.fetchall()
            except _NOT_PREPARED:
                connection.prepare_threshold = None
                raise
            finally:
                self._source.give_back(connection)

    async def run_script(self, scripts: list[SqlCall], deadline: float) -> Rows:
        with errors.translated(self.name) as fault:
            connection = self._source.take(deadline)
            try:
                fault.sent = True
                with connection.transaction():
                    cursor = connection.cursor()
                    for script in scripts:
                        cursor.execute(script.statement, script.parameters or None, prepare=False)
                    return cursor.fetchall() if cursor.description else []
            finally:
                self._source.give_back(connection)

    async def close(self) -> None:
        self._source.close()


class _Client:
    """A connection we were given, or a pool of them. It keeps its own time, and stays open after the store."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._is_pool = hasattr(client, "getconn")
        self._name = name
        self._closed = False
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def _check_open(self) -> None:
        if self._closed:
            raise errors.closed(self._name)

    def _usable(self, connection: Any) -> Any:
        """Check a connection, and let it send our types. Raises InvalidInput."""
        checked_connection(connection)
        if connection not in self._known:
            arrays.register(connection)
            self._known.add(connection)
        return connection

    @contextmanager
    def _in_time(self, deadline: float) -> Iterator[float]:
        """Give the seconds that a pool may be waited for. Raises MemoryStoreBackendError when they are over."""
        from psycopg_pool import PoolTimeout

        try:
            yield max(0.0, deadline - time.monotonic())
        except PoolTimeout as exc:
            raise errors.exhausted(self._name) from exc


class GivenClient(_Client):
    """Lends the connections of a blocking client that we were given."""

    def take(self, deadline: float) -> Any:
        self._check_open()
        if not self._is_pool:
            return self._usable(self._client)
        with self._in_time(deadline) as seconds:
            connection = self._client.getconn(timeout=seconds)
        try:
            return self._usable(connection)
        except BaseException:
            self._client.putconn(connection)
            raise

    def give_back(self, connection: Any) -> None:
        if self._is_pool:
            self._client.putconn(connection)

    def close(self) -> None:
        self._closed = True


def checked_connection(connection: Any) -> None:
    """Raise InvalidInput unless each statement on the connection is a transaction of its own."""
    if not connection.autocommit:
        raise InvalidInput(
            "must be in autocommit mode: each change is a transaction of its own. Connect with autocommit=True "
            "(for a pool: kwargs={'autocommit': True})",
            path="client",
        )
    status = connection.pgconn.transaction_status
    if status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
        raise InvalidInput("has a transaction open; give a connection that is idle", path="client")


# --- awaited ---------------------------------------------------------------------------------------------------------


class AsyncConnectionSource(Protocol):
    """Lends connections of an event loop: connections.AsyncTimedPool, or AsyncGivenClient.

    `outlasts_cancellation`: a statement that writes goes on when the task that waits for it is cancelled.
    """

    outlasts_cancellation: bool

    async def take(self, deadline: float) -> Any: ...

    async def give_back(self, connection: Any) -> None: ...

    async def close(self) -> None: ...


class AsyncExecutor:
    """Runs calls in the event loop it was made in."""

    def __init__(self, source: AsyncConnectionSource, name: str) -> None:
        self._source = source
        self.name = name

    async def run(self, call: SqlCall, deadline: float) -> Rows:
        if call.writes:
            return await self.send_to_the_end(lambda: call, deadline)
        return await self.send(lambda: call, deadline)

    async def send_to_the_end(self, choose: Callable[[], SqlCall | None], deadline: float) -> Rows:
        """Send a call as `send` does. Cancelled once it was sent, wait for its outcome before that is raised."""
        if not self._source.outlasts_cancellation:
            rows: Rows = await until_done(asyncio.create_task(self.send(choose, deadline)))
            return rows
        before = cancellations()
        try:
            rows = await self.send(choose, deadline)
        except Exception as exc:
            if cancellations() > before:
                raise asyncio.CancelledError from exc
            raise
        if cancellations() > before:
            raise asyncio.CancelledError
        return rows

    async def send(self, choose: Callable[[], SqlCall | None], deadline: float) -> Rows:
        """Send the call that is chosen once a connection is in hand, if any. Cancelled, it is just dropped."""
        with errors.translated(self.name) as fault:
            connection = await self._source.take(deadline)
            try:
                call = choose()
                if call is None:
                    return []
                cursor = async_cursor_on(connection)
                fault.sent = call.writes
                is_ours = type(connection) is TimedAsyncConnection
                if is_ours:
                    connection.is_kept = call.writes
                await cursor.execute(call.statement, call.parameters, prepare=call.prepares and is_ours)
                return await cursor.fetchall()
            except _NOT_PREPARED:
                connection.prepare_threshold = None
                raise
            finally:
                await self._source.give_back(connection)

    async def run_script(self, scripts: list[SqlCall], deadline: float) -> Rows:
        with errors.translated(self.name) as fault:
            connection = await self._source.take(deadline)
            try:
                fault.sent = True
                async with connection.transaction():
                    cursor = connection.cursor()
                    for script in scripts:
                        await cursor.execute(script.statement, script.parameters or None, prepare=False)
                    return await cursor.fetchall() if cursor.description else []
            finally:
                await self._source.give_back(connection)

    async def close(self) -> None:
        await self._source.close()


def cancellations() -> int:
    """Count the cancellations of the current task that nobody has handled yet."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


async def until_done(task: asyncio.Task[Any]) -> Any:
    """Wait for the task's result. If the caller is cancelled meanwhile, that is raised once the task has ended: its
    statement was sent, and the outcome must be settled by then. The task has a deadline of its own."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as exc:
            if task.cancelled():
                raise
            cancelled = exc
        except Exception:  # noqa: BLE001 - raised below, unless the caller has gone
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: nobody else will
        raise cancelled
    return task.result()


class AsyncGivenClient(_Client):
    """Lends the connections of an event loop's client that we were given."""

    outlasts_cancellation = False

    async def take(self, deadline: float) -> Any:
        self._check_open()
        if not self._is_pool:
            return self._usable(self._client)
        with self._in_time(deadline) as seconds:
            connection = await self._client.getconn(timeout=seconds)
        try:
            return self._usable(connection)
        except BaseException:
            await self._client.putconn(connection)
            raise

    async def give_back(self, connection: Any) -> None:
        if self._is_pool:
            await self._client.putconn(connection)

    async def close(self) -> None:
        self._closed = True
