"""Sends requests to DynamoDB by botocore, which blocks: each runs in a thread of a pool, and is waited for.

Both faces send in this way. A blocking store waits for the thread, an asynchronous one awaits it; so every call ends by
its deadline, whatever the network does (docs/decisions/075-dynamodb-driver.md).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import zlib
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeAlias

import botocore.config
import botocore.session
import msgspec

from everturn import events
from everturn.backends._shared.connection_watch import ConnectionWatch
from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.stored_form import Item
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

Parameters: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 10.0  # seconds that a thread waits at most; a call ends by its own deadline
FIRST_ERROR = 300  # status of HTTP


class TableAddress(msgspec.Struct, frozen=True):
    """A table, and where it is. None: botocore's own configuration decides."""

    table: str
    region: str | None = None
    endpoint: str | None = None
    max_connections: int = 32

    @property
    def name(self) -> str:
        """Name in errors and events."""
        return f"dynamodb://{self.table}"


class DynamoDBClient:
    """Sends requests about one table. Safe between threads; a forked child makes connections of its own."""

    def __init__(self, address: TableAddress, *, blocking: bool) -> None:
        self.address = address
        self.name = address.name
        self.table = address.table
        self._blocking = blocking
        self._lock = threading.Lock()
        self._process = 0
        self._pool: ThreadPoolExecutor | None = None
        self._driver: Any = None
        self._making = threading.Lock()
        self._closed = False
        self.watch = ConnectionWatch(events.Source("dynamodb", self.name))
        self.sent: dict[str, int] | None = None  # requests by operation, if somebody counts them

    def _threads(self) -> ThreadPoolExecutor:
        """Return the pool of this process. After a fork the parent's threads are not there, so it is made anew."""
        pool = self._pool
        if pool is not None and self._process == os.getpid():
            return pool
        if self._process != os.getpid():
            self._lock = threading.Lock()  # a thread of the parent may have held it
        with self._lock:
            if self._closed:
                raise errors.closed(self.name)
            if self._pool is None or self._process != os.getpid():
                self._driver = None
                self._making = threading.Lock()
                self._pool = ThreadPoolExecutor(self.address.max_connections, thread_name_prefix="everturn-dynamodb")
                self._process = os.getpid()
            return self._pool

    async def send(self, operation: str, parameters: Parameters, deadline: float, *, writes: bool = False) -> Answer:
        """Send one request, and wait for its answer until the deadline.

        Raises ConditionNotMet, or MemoryStoreBackendError. A request that writes and was sent is waited for, also by a
        task that is cancelled meanwhile.
        """
        try:
            answer: Answer
            future = self._submitted(operation, parameters)
            if self._blocking:
                answer = self._wait(future, deadline, writes=writes)
            else:
                answer = await self._await(future, deadline, writes=writes)
        except MemoryStoreBackendError:
            raise
        except Exception as exc:
            if is_interruption(exc):
                raise
            error = errors.from_driver(exc, self.name, writes=writes)
            if isinstance(error, errors.ConditionNotMet) or errors.meaning_of(exc).kind != "lost":
                self._answered()
            else:
                self.watch.lost(error)
            raise error from exc
        self._answered()
        return answer

    def send_unawaited(
        self, operation: str, parameters: Parameters | None, again: Callable[[Item | None], Parameters | None]
    ) -> None:
        """Send a conditional request that nobody waits for.

        If its condition is not met, `again` makes the next one of the stored item, until it returns None. Raises
        MemoryStoreBackendError if the store is closed.
        """
        if self._closed:
            raise errors.closed(self.name)
        self._threads().submit(self._run_until, operation, parameters, again)

    def _run_until(
        self, operation: str, parameters: Parameters | None, again: Callable[[Item | None], Parameters | None]
    ) -> None:
        while parameters is not None:
            self._count(operation)
            try:
                self._run(operation, parameters)
            except Exception as exc:  # noqa: BLE001 - nobody waits for it
                error = errors.from_driver(exc, self.name, writes=True)
                if not isinstance(error, errors.ConditionNotMet):
                    return
                parameters = again(error.items[0])
            else:
                return

    def _submitted(self, operation: str, parameters: Parameters) -> Future[Answer]:
        if self._closed:
            raise errors.closed(self.name)
        self._count(operation)
        return self._threads().submit(self._run, operation, parameters)

    def _count(self, operation: str) -> None:
        if self.sent is not None:
            self.sent[operation] = self.sent.get(operation, 0) + 1

    def _answered(self) -> None:
        if self.watch.lost_at is not None:
            self.watch.answered()

    def _run(self, operation: str, parameters: Parameters) -> Answer:
        driver = self._driver
        if driver is None:
            # In the thread: it may ask the network for credentials, and the deadline holds for that, too.
            with self._making:
                if self._closed:  # since this request was submitted: nobody would close another driver
                    raise errors.closed(self.name)
                driver = self._driver = self._driver or driver_of(self.address)
        answer: Answer = getattr(driver, operation)(**parameters)
        return answer

    def _wait(self, future: Future[Answer], deadline: float, *, writes: bool) -> Answer:
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            if future.done():
                raise
            raise self._late(future, writes=writes) from None

    async def _await(self, future: Future[Answer], deadline: float, *, writes: bool) -> Answer:
        waiting = asyncio.wrap_future(future)
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            left = deadline - time.monotonic()
            try:
                await asyncio.wait({waiting}, timeout=max(0.0, left))
            except asyncio.CancelledError as exc:
                if not writes or future.cancel():
                    waiting.cancel()
                    raise
                cancelled = exc  # it was sent: its outcome is waited for
            if not waiting.done() and time.monotonic() >= deadline:
                error = self._late(future, writes=writes)
                waiting.add_done_callback(_look)
                raise cancelled or error
        if cancelled is not None:
            _look(waiting)
            raise cancelled
        return waiting.result()

    def _late(self, future: Future[Answer], *, writes: bool) -> MemoryStoreBackendError:
        if future.cancel():  # it still waited for a thread
            return errors.exhausted(self.name)
        return errors.unanswered(self.name, writes=writes)

    async def sleep(self, seconds: float) -> None:
        """Wait, by blocking the thread or by leaving it to the event loop."""
        if self._blocking:
            time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop in a blocking store
        else:
            await asyncio.sleep(seconds)

    async def wait_for(self, other: Future[None], seconds: float) -> bool:
        """Wait for another thread or task, so many seconds at most. Returns whether it is done."""
        if self._blocking:
            futures.wait([other], max(0.0, seconds))
        else:
            await asyncio.wait({asyncio.wrap_future(other)}, timeout=max(0.0, seconds))
        return other.done()

    async def close(self) -> None:
        """Release the connections. Requests under way end by themselves."""
        self._closed = True
        pool, driver = self._pool, self._driver
        self._pool = self._driver = None
        if pool is not None and self._process == os.getpid():
            pool.shutdown(wait=False, cancel_futures=True)
            if driver is not None:
                driver.close()


def _look(waiting: asyncio.Future[Answer]) -> None:
    """Look at the outcome of a request that nobody waits for any more: an event loop complains of errors unseen."""
    if not waiting.cancelled():
        waiting.exception()


@cache
def _loader() -> Any:
    """Read botocore's description of DynamoDB once: it takes 40 ms, and never changes."""
    return botocore.session.get_session().get_component("data_loader")


@cache
def load_description() -> None:
    """Read botocore's description of DynamoDB now, before a time-out begins: at the first opening in a process."""
    driver_of(
        TableAddress("none", "us-east-1", "http://localhost"), aws_access_key_id="none", aws_secret_access_key=""
    ).close()


def driver_of(address: TableAddress, **credentials: str) -> Any:
    """Make botocore's client. Its own retries are off: a blind retry could write twice."""
    config = botocore.config.Config(
        retries={"total_max_attempts": 1},
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        max_pool_connections=address.max_connections,
        user_agent_extra="everturn",
        tcp_keepalive=True,
    )
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader())
    driver = session.create_client(
        "dynamodb", region_name=address.region, endpoint_url=address.endpoint, config=config, **credentials
    )
    driver.meta.events.register("after-call.dynamodb", _check_answer)
    return driver


def _check_answer(http_response: Any, **_: Any) -> None:
    """Compare an answer with its type, length and checksum. Raises UnreadableAnswer.

    botocore takes a page of a proxy, or half an answer, for an empty one: a change would seem to be kept, and a session
    to have no history.
    """
    if http_response.status_code >= FIRST_ERROR:
        return
    headers, body = http_response.headers, http_response.content
    if not headers.get("content-type", "").startswith("application/x-amz-json"):
        raise errors.UnreadableAnswer("it is of another type")
    if int(headers.get("content-length", len(body))) != len(body) or not body.endswith(b"}"):
        raise errors.UnreadableAnswer("it is not whole")
    if int(headers.get("x-amz-crc32", zlib.crc32(body))) != zlib.crc32(body):
        raise errors.UnreadableAnswer("its checksum does not fit")
