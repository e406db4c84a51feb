"""Connections of psycopg that keep to a deadline, and the limits that the server keeps to by itself.

It knows nothing of sessions and of pools; what is sent over a connection is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row
from psycopg.waiting import Wait

from everturn.backends._shared.deadline_watch import DeadlineWatch
from everturn.backends._shared.thread_pool import PoolPlace
from everturn.backends.postgres import errors
from everturn.backends.postgres.cancellation import abandon, withdraw

T = TypeVar("T")
SOON = 0.5  # seconds in which a server answers that has nothing to wait for
LONGEST = 86_400.0  # seconds that the server is told to wait at most, where the deadline is no deadline

# As integers: the members of an enum take longer to find.
_READ, _WRITE = int(Wait.R), int(Wait.W)
_IDLE = int(pq.TransactionStatus.IDLE)
_EVENTS = {_READ: select.POLLIN, _WRITE: select.POLLOUT, _READ | _WRITE: select.POLLIN | select.POLLOUT}

_connect_by: ContextVar[float] = ContextVar("everturn_connect_by", default=math.inf)


@contextmanager
def connecting_by(deadline: float) -> Iterator[None]:
    """Bound every attempt to connect in this block. Past the deadline it raises TimeUp."""
    token = _connect_by.set(deadline)
    try:
        yield
    finally:
        _connect_by.reset(token)


def _until(steps: Generator[Any, Any, T], deadline: float) -> Generator[Any, Any, T]:
    """Take psycopg's own steps, and end them with TimeUp when they would go past the deadline.

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


def _poller(connection: TimedConnection | TimedAsyncConnection, wanted: int) -> select.poll:
    """Give the object that waits for the socket. The one for reads is kept: nearly all waits are."""
    if wanted == _READ and connection.poller is not None:
        return connection.poller
    poller = select.poll()
    poller.register(connection.pgconn.socket, _EVENTS[wanted])
    if wanted == _READ:
        connection.poller = poller
    return poller


class TimedConnection(psycopg.Connection[Any]):
    """A blocking connection. Past `deadline` it is closed: whatever the server does, the caller goes on.

    It is closed as well when a signal's handler raises something while it waits.
    """

    deadline: float = math.inf
    limit: float = math.inf
    place: PoolPlace[Any]  # in the pool that lends it
    cursor_of_its_own: psycopg.Cursor[Any] | None = None
    poller: select.poll | None = None  # of reads

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        return _until(super()._connect_gen(*args, **kwargs), _connect_by.get())

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._ready(wanted))
        except StopIteration as stop:
            return stop.value
        except psycopg.Error:
            raise
        except BaseException:
            abandon(self.pgconn)  # psycopg would first ask the server to cancel, and wait for it
            raise

    def _ready(self, wanted: int) -> int:
        """Wait until the socket can be read or written, as psycopg wants. Raises TimeUp past the deadline."""
        poller = _poller(self, wanted)
        while not (events := poller.poll(1000 * min(max(self.deadline - time.monotonic(), 0.0), LONGEST))):
            if time.monotonic() >= self.deadline:
                raise errors.TimeUp
        ((_, event),) = events
        # An error is noticed by reading.
        return (_READ if event & ~select.POLLOUT else 0) | (_WRITE if event & select.POLLOUT else 0)


class TimedAsyncConnection(psycopg.AsyncConnection[Any]):
    """A connection of an event loop, closed past its `deadline` or when the task that waits is cancelled.

    `is_kept`: it is not closed when the task is cancelled. It waits for a change, whose outcome must be settled before
    the caller hears of the cancel; and whoever ends an event loop cancels also the tasks of ours that see to changes of
    others. If the server does not answer soon, it waits itself, for a lock say: then it is asked to cancel the
    statement, which settles it as well.
    """

    deadline: float = math.inf
    limit: float = math.inf
    cursor_of_its_own: psycopg.AsyncCursor[Any] | None = None
    poller: select.poll | None = None
    is_kept = False
    _deadlines: DeadlineWatch[asyncio.Future[int]] | None = None

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        return _until(super()._connect_gen(*args, **kwargs), _connect_by.get())

    async def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        withdrawal: asyncio.TimerHandle | None = None
        try:
            wanted = next(gen)
            while True:
                try:
                    ready = await self._ready(wanted)
                except asyncio.CancelledError:
                    if not self.is_kept:
                        raise
                    if withdrawal is None:
                        withdrawal = asyncio.get_running_loop().call_later(SOON, withdraw, self.pgconn)
                else:
                    wanted = gen.send(ready)
        except StopIteration as stop:
            return stop.value
        except psycopg.Error:
            raise
        except BaseException:
            abandon(self.pgconn)
            raise
        finally:
            if withdrawal is not None:
                withdrawal.cancel()

    async def _ready(self, wanted: int) -> int:
        """Wait until the socket can be read or written, as psycopg wants. Raises TimeUp past the deadline."""
        loop, socket = asyncio.get_running_loop(), self.pgconn.socket
        ready: asyncio.Future[int] = loop.create_future()
        if self._deadlines is None:
            self._deadlines = DeadlineWatch(self._expire)
        self._deadlines.add(ready, self.deadline)
        if wanted & _READ:
            loop.add_reader(socket, _tell, ready, _READ)
        if wanted & _WRITE:
            loop.add_writer(socket, _tell, ready, _WRITE)
        try:
            return await ready
        finally:
            if wanted & _READ:
                loop.remove_reader(socket)
            if wanted & _WRITE:
                loop.remove_writer(socket)
            self._deadlines.remove(ready)

    def _expire(self, ready: asyncio.Future[int]) -> None:
        if not ready.done():
            ready.set_exception(errors.TimeUp())

    async def close(self) -> None:
        if self._deadlines is not None:
            self._deadlines.close()
        await super().close()


def _tell(waiting: asyncio.Future[int], ready: int) -> None:
    if not waiting.done():
        waiting.set_result(ready)


def cursor_on(connection: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
    """Give the cursor of a connection of ours, or make one, whatever an injected connection makes by default.

    A cursor remembers how types are sent and read: a new one for each call costs 20 us.
    """
    if type(connection) is TimedConnection and connection.cursor_of_its_own is not None:
        return connection.cursor_of_its_own
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    if type(connection) is TimedConnection:
        connection.cursor_of_its_own = cursor
    return cursor


def async_cursor_on(connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Any]:
    """Give or make a cursor of an event loop, like `cursor_on`."""
    if type(connection) is TimedAsyncConnection and connection.cursor_of_its_own is not None:
        return connection.cursor_of_its_own
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    if type(connection) is TimedAsyncConnection:
        connection.cursor_of_its_own = cursor
    return cursor


def is_alive(connection: TimedConnection | TimedAsyncConnection) -> bool:
    """Whether a connection that was idle can be used. One that has something to say has been told to go."""
    if connection.pgconn.transaction_status != _IDLE:  # nor is one that is closed
        return False
    return not _poller(connection, _READ).poll(0)


# --- limits of the server --------------------------------------------------------------------------------------------

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


class ServerLimits:
    """Limits that the server keeps to by itself, for a client that dies and can cancel nothing: statement_timeout.

    They are set for the longest that a caller waits here, on connections of ours. A limit that the user has set stays.
    """

    def __init__(self) -> None:
        self._seconds = 0.0

    def first(self, connection: TimedConnection | TimedAsyncConnection, deadline: float) -> tuple[str, tuple[Any, ...]]:
        """The statement that sets them on a new connection. `take_in` reads its answer."""
        # A pooler tells another process than the one that answers, whose settings would last for whoever comes next.
        return _LIMITS, (connection.pgconn.backend_pid, self._set_on(connection, deadline)) * 2

    def take_in(self, connection: TimedConnection | TimedAsyncConnection, answer: tuple[Any, ...] | None) -> None:
        """Note the answer to `first`: NULL where a pooler is in between, '' for a limit that the user has set."""
        limit, *_ = answer or (None,)
        if not limit:
            connection.limit = math.inf
        if limit is None:  # the next statement may meet a server that has prepared nothing
            connection.prepare_threshold = None

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


def lock_timeout(seconds: float) -> int:
    """Milliseconds that a lock may be waited for, so that the server says so before the caller's time is up."""
    return max(1, int(min(seconds, LONGEST) * 900))
