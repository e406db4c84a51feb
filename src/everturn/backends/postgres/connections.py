"""Connections that keep to a deadline, and the pools of those we opened. (docs/decisions/ says why not psycopg_pool.)

It knows nothing of sessions; what is sent over a connection is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import time
import weakref
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg import pq, waiting
from psycopg.adapt import Dumper
from psycopg.rows import tuple_row

from everturn.backends._shared.thread_pool import BoundedPool
from everturn.backends.postgres import errors
from everturn.backends.postgres.cancellation import abandon, withdraw
from everturn.backends.postgres.libpq_append import LONGEST, Direct, Texts

T = TypeVar("T")
GLANCE = 0.1  # seconds at most between looks at the clock, and at signals
SOON = 0.5  # seconds in which a server answers that has nothing to wait for

_connect_by: ContextVar[float] = ContextVar("everturn_connect_by", default=math.inf)


def _until(steps: Generator[Any, Any, T], deadline: float) -> Generator[Any, Any, T]:
    """psycopg's own steps, ended with TimeUp when they would go past the deadline.

    They can be waited for anew where a wait was broken off: `ready` is None then.
    """
    try:
        wanted = next(steps)
        while True:
            ready = (yield wanted) or 0
            if not ready and time.monotonic() >= deadline:
                raise errors.TimeUp
            wanted = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _interval(deadline: float) -> float:
    return min(GLANCE, max(deadline - time.monotonic(), 0.001))


class TimedConnection(psycopg.Connection[Any]):
    """A blocking connection. Past `deadline` it is closed: whatever the server does, the caller goes on.

    So it is when a signal's handler raises something while it waits.
    """

    deadline: float = math.inf
    limit: float = math.inf
    kept_cursor: psycopg.Cursor[Any] | None = None
    direct: Direct

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        return _until(super()._connect_gen(*args, **kwargs), _connect_by.get())

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        try:
            return waiting.wait(_until(gen, self.deadline), self.pgconn.socket, interval=_interval(self.deadline))
        except psycopg.Error:
            raise
        except BaseException:
            abandon(self.pgconn)  # psycopg would first ask the server to cancel, and wait for it
            raise


class TimedAsyncConnection(psycopg.AsyncConnection[Any]):
    """A connection of an event loop, closed past its `deadline` or when the task that waits is cancelled.

    `is_kept`: it is not closed when the task is cancelled. Whoever ends an event loop cancels every task, also those of
    ours that see to a change on behalf of another task, which waits for the outcome. If the server does not answer
    soon, it waits itself, for a lock say: then it is asked to cancel the statement, which settles it as well.
    """

    deadline: float = math.inf
    limit: float = math.inf
    is_kept = False

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        return _until(super()._connect_gen(*args, **kwargs), _connect_by.get())

    async def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        steps = _until(gen, self.deadline)
        withdrawal: asyncio.TimerHandle | None = None
        try:
            while True:
                try:
                    return await waiting.wait_async(steps, self.pgconn.socket, interval=_interval(self.deadline))
                except asyncio.CancelledError:
                    if not self.is_kept:
                        raise
                    if withdrawal is None:
                        withdrawal = asyncio.get_running_loop().call_later(SOON, withdraw, self.pgconn)
        except psycopg.Error:
            raise
        except BaseException:
            abandon(self.pgconn)
            raise
        finally:
            if withdrawal is not None:
                withdrawal.cancel()


# (search_path: our statements and functions name the schema of everything; this is for what somebody forgets.)
_LIMITS = """
    SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<>) %s THEN NULL
                WHEN pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) IS NULL THEN NULL
                WHEN pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.<>) '0' THEN ''
                ELSE pg_catalog.set_config('statement_timeout', %s, false) END,
           CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s
                 AND pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'
                THEN pg_catalog.set_config('idle_in_transaction_session_timeout', %s, false) END
"""
_NEW_LIMIT = "SELECT pg_catalog.set_config('statement_timeout', %s, false)"


class Limits:
    """Limits that the server keeps to by itself, for a client that dies and can cancel nothing: statement_timeout.

    They are set for the longest that a caller waits here, on connections of ours. A limit that the user has set stays.
    """

    def __init__(self) -> None:
        self._seconds = 0.0

    def first(self, connection: TimedConnection | TimedAsyncConnection, deadline: float) -> tuple[str, tuple[Any, ...]]:
        """The statement that sets them on a new connection. It answers with NULL where a pooler is in between."""
        # A pooler tells another process than the one that answers, whose settings would last for whoever comes next.
        return _LIMITS, (connection.pgconn.backend_pid, self._set_on(connection, deadline)) * 2

    def next(
        self, connection: TimedConnection | TimedAsyncConnection, deadline: float
    ) -> tuple[str, tuple[Any, ...]] | None:
        """The statement that is needed before a call with this deadline, if any: hardly ever."""
        if deadline - time.monotonic() <= connection.limit:
            return None
        return _NEW_LIMIT, (self._set_on(connection, deadline),)

    def _set_on(self, connection: TimedConnection | TimedAsyncConnection, deadline: float) -> str:
        seconds = min(max(0.0, deadline - time.monotonic()), LONGEST)
        self._seconds = max(self._seconds, seconds * 1.1 + 0.1)  # the caller's own time is up first
        connection.limit = self._seconds
        return f"{int(self._seconds * 1000)}ms"


# --- what goes over them ---------------------------------------------------------------------------------------------


class _TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1009  # text[]

    def dump(self, obj: Texts) -> bytes:
        return obj.wired()


def prepare(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Teach a connection what we send."""
    connection.adapters.register_dumper(Texts, _TextsDumper)


def cursor_on(connection: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
    """A cursor as we need it, whatever an injected connection makes by default. Our own connections keep theirs."""
    cursor = getattr(connection, "kept_cursor", None)
    if cursor is None:
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        cursor.format = pq.Format.BINARY
    return cursor


def async_cursor_on(connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Any]:
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    return cursor


def is_alive(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether a connection that was idle can be used. One that has something to say has been told to go."""
    if connection.closed or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


# --- pools -----------------------------------------------------------------------------------------------------------


class Pool:
    """At most `size` blocking connections, opened when they are needed, by whoever needs them, within its time."""

    def __init__(self, conninfo: str, size: int, name: str) -> None:
        self._conninfo = conninfo
        self._size = size
        self._name = name
        self._limits = Limits()
        self._shelf = self._new_shelf()
        _pools.add(self)

    def _new_shelf(self) -> BoundedPool[TimedConnection]:
        return BoundedPool(self._size, lambda: errors.exhausted(self._name), lambda: errors.closed(self._name))

    def take(self, deadline: float) -> TimedConnection:
        while True:
            connection = self._shelf.take(deadline)
            try:  # whatever interrupts it: what was taken is given up
                if connection is None:
                    connection = self._new(deadline)
                if connection.direct.is_idle():
                    connection.deadline = deadline
                    limits = self._limits.next(connection, deadline)
                    if limits is not None:
                        connection.execute(*limits)
                    return connection
            except BaseException:
                self._drop(connection)
                raise
            self._drop(connection)

    def _drop(self, connection: TimedConnection | None) -> None:
        self._shelf.forget()
        if connection is not None:
            connection.close()

    def _new(self, deadline: float) -> TimedConnection:
        token = _connect_by.set(deadline)
        try:
            connection = TimedConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        finally:
            _connect_by.reset(token)
        connection.deadline = deadline
        prepare(connection)
        connection.kept_cursor = cursor_on(connection)
        try:
            limit, *_ = connection.execute(*self._limits.first(connection, deadline)).fetchone() or (None,)
            connection.limit = connection.limit if limit else math.inf
            connection.direct = Direct(connection, is_pooled=limit is None)
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: TimedConnection) -> None:
        try:
            is_closed = connection.closed
        except BaseException:  # interrupted
            self._drop(connection)
            raise
        if is_closed:
            self._shelf.forget()
            return
        self._shelf.give_back(connection)
        if self._shelf.is_closed:
            _close(self._shelf.clear())

    def close(self) -> None:
        """Close idle connections now, and those in use when they come back."""
        _close(self._shelf.close())

    def leave_to_parent(self) -> None:
        """In the child of a fork: these connections are the parent's. Closing one would say goodbye on its behalf."""
        _of_the_parent.append(self._shelf)
        if not self._shelf.is_closed:
            self._shelf = self._new_shelf()


def _close(connections: list[TimedConnection]) -> None:
    for connection in connections:
        connection.close()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_of_the_parent: list[BoundedPool[TimedConnection]] = []  # kept, so that nothing finalises them


def _after_fork_in_child() -> None:
    for pool in _pools:
        pool.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class AsyncPool:
    """The same for an event loop."""

    def __init__(self, conninfo: str, size: int, name: str) -> None:
        self._conninfo = conninfo
        self._name = name
        self._limits = Limits()
        self._closed = False
        self._slots = asyncio.Semaphore(size)
        self._idle: list[TimedAsyncConnection] = []

    async def take(self, deadline: float) -> TimedAsyncConnection:
        if self._closed:
            raise errors.closed(self._name)
        if self._slots.locked():
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._slots.acquire()
            except TimeoutError:
                raise errors.exhausted(self._name) from None
        else:
            await self._slots.acquire()
        try:
            connection = await self._idle_or_new(deadline)
        except BaseException:
            self._slots.release()
            raise
        connection.deadline = deadline
        limits = self._limits.next(connection, deadline)
        if limits is not None:
            try:
                await connection.execute(*limits)
            except BaseException:
                await self.give_back(connection)
                raise
        return connection

    async def _idle_or_new(self, deadline: float) -> TimedAsyncConnection:
        while self._idle:
            connection = self._idle.pop()
            if is_alive(connection):
                return connection
            await connection.close()
        token = _connect_by.set(deadline)
        try:
            connection = await TimedAsyncConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        finally:
            _connect_by.reset(token)
        connection.deadline = deadline
        prepare(connection)
        try:
            cursor = await connection.execute(*self._limits.first(connection, deadline))
            limit, *_ = await cursor.fetchone() or (None,)
        except BaseException:
            await connection.close()
            raise
        connection.limit = connection.limit if limit else math.inf
        return connection

    async def give_back(self, connection: TimedAsyncConnection) -> None:
        connection.is_kept = False
        if self._closed or connection.closed:
            await connection.close()
        else:
            self._idle.append(connection)
        self._slots.release()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
