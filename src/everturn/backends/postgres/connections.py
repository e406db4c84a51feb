"""Pools of the connections that we open: blocking, and of an event loop. (Decision 009 says why not psycopg_pool.)

A connection is opened by the call that needs it, within its own deadline. It knows nothing of sessions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from everturn.backends._shared.connection_watch import ConnectionWatch
from everturn.backends._shared.thread_pool import BoundedPool, PoolPlace
from everturn.backends.postgres import arrays, errors
from everturn.backends.postgres.timed_connections import (
    ServerLimits,
    TimedAsyncConnection,
    TimedConnection,
    connecting_by,
    is_alive,
)
from everturn.events import Source


class TimedPool:
    """At most `size` blocking connections, opened when they are needed, by the call that needs one, within its time."""

    def __init__(self, conninfo: str, size: int, name: str) -> None:
        self._conninfo = conninfo
        self._size = size
        self._name = name
        self._limits = ServerLimits()
        self._watch = ConnectionWatch(Source("postgres", name))
        self._connections = self._new_pool()
        _pools.add(self)

    def _new_pool(self) -> BoundedPool[TimedConnection]:
        exhausted, closed = partial(errors.exhausted, self._name), partial(errors.closed, self._name)
        return BoundedPool(self._size, exhausted, closed, self._watch.waited)

    def take(self, deadline: float) -> TimedConnection:
        """Take a connection that is alive, or open one. Raises MemoryStoreBackendError, TimeUp, psycopg.Error."""
        while True:
            place = self._connections.take(deadline)
            connection, place.item = place.item, None  # the connection has the place now: no cycle of the two is lent
            try:  # whatever interrupts it: what was taken is given up
                if connection is None:
                    connection = self._new(deadline)
                if is_alive(connection):
                    connection.place = place
                    connection.deadline = deadline
                    limits = self._limits.next(connection, deadline)
                    if limits is not None:
                        connection.execute(*limits, prepare=False)
                    return connection
            except BaseException:
                self._drop(place, connection)
                raise
            self._drop(place, connection)

    def _drop(self, place: PoolPlace[TimedConnection], connection: TimedConnection | None) -> None:
        self._connections.forget(place)
        if connection is not None:
            connection.close()

    def _new(self, deadline: float) -> TimedConnection:
        with watched_by(self._watch), connecting_by(deadline):
            connection = TimedConnection.connect(self._conninfo, autocommit=True)
        connection.deadline = deadline
        arrays.register(connection)
        try:
            cursor = connection.execute(*self._limits.first(connection, deadline), prepare=False)
            self._limits.take_in(connection, cursor.fetchone())
        except BaseException:
            connection.close()
            raise
        self._watch.answered(_server_of(connection))
        return connection

    def give_back(self, connection: TimedConnection) -> None:
        """Give a connection back. One that is closed by now leaves room for another."""
        place = connection.place
        try:
            is_closed = connection.closed
        except BaseException:  # interrupted
            self._drop(place, connection)
            raise
        if is_closed:
            self._watch.lost(sys.exception())
            self._connections.forget(place)
            return
        place.item = connection
        self._connections.give_back(place)
        if self._connections.is_closed:
            _close(self._connections.clear())

    def close(self) -> None:
        """Close idle connections now, and those in use when they come back."""
        _close(self._connections.close())

    def leave_to_parent(self) -> None:
        """In the child of os.fork: these connections are the parent's. Closing one would say goodbye on its behalf."""
        _of_the_parent.append(self._connections)
        if not self._connections.is_closed:
            self._connections = self._new_pool()


@contextmanager
def watched_by(watch: ConnectionWatch) -> Iterator[None]:
    """Tell the watch of an error with which no connection could be made."""
    try:
        yield
    except BaseException as exc:
        watch.lost(exc)
        raise


def _server_of(connection: TimedConnection | TimedAsyncConnection) -> str:
    """Name the server of a connection: of several hosts, the one that was reached."""
    return f"{connection.info.host}:{connection.info.port}"


def _close(connections: list[TimedConnection]) -> None:
    for connection in connections:
        connection.close()


_pools: weakref.WeakSet[TimedPool] = weakref.WeakSet()
_of_the_parent: list[BoundedPool[TimedConnection]] = []  # kept, so that nothing finalises them


def _in_child_process() -> None:
    for pool in _pools:
        pool.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child_process)


class AsyncTimedPool:
    """At most `size` connections of an event loop, opened when they are needed, by the task that needs them."""

    outlasts_cancellation = True

    def __init__(self, conninfo: str, size: int, name: str) -> None:
        self._conninfo = conninfo
        self._name = name
        self._limits = ServerLimits()
        self._watch = ConnectionWatch(Source("postgres", name))
        self._closed = False
        self._slots = asyncio.Semaphore(size)
        self._idle: list[TimedAsyncConnection] = []

    async def take(self, deadline: float) -> TimedAsyncConnection:
        """Take a connection that is alive, or open one. Raises MemoryStoreBackendError, TimeUp, psycopg.Error."""
        if self._closed:
            raise errors.closed(self._name)
        if self._slots.locked():
            since = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._slots.acquire()
            except TimeoutError:
                raise errors.exhausted(self._name) from None
            finally:
                self._watch.waited(since)
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
                await connection.execute(*limits, prepare=False)
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
        with watched_by(self._watch), connecting_by(deadline):
            connection = await TimedAsyncConnection.connect(self._conninfo, autocommit=True)
        connection.deadline = deadline
        arrays.register(connection)
        try:
            cursor = await connection.execute(*self._limits.first(connection, deadline), prepare=False)
            self._limits.take_in(connection, await cursor.fetchone())
        except BaseException:
            await connection.close()
            raise
        self._watch.answered(_server_of(connection))
        return connection

    async def give_back(self, connection: TimedAsyncConnection) -> None:
        """Give a connection back. One that is closed by now leaves room for another."""
        connection.is_kept = False
        if self._closed or connection.closed:
            if not self._closed:
                self._watch.lost(sys.exception())
            await connection.close()
        else:
            self._idle.append(connection)
        self._slots.release()

    async def close(self) -> None:
        """Close idle connections now, and those in use when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
