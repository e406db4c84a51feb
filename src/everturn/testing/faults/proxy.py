"""A loopback proxy that breaks the network on purpose, between any client and any server, at the level of bytes.

It knows no protocol: Redis and PostgreSQL both send only replies to requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from everturn.testing.servers.binaries import LOOPBACK, free_port

Afterwards: TypeAlias = Literal["silence", "close"]

_CHUNK = 65_536


@dataclass(frozen=True)
class _Swallow:
    """A rule: swallow the reply to one request that holds these bytes, after so many others that hold them."""

    matching: bytes
    then: Afterwards
    after: int = 0


@dataclass(frozen=True)
class _HoldRequest:
    """A rule: hold one request that holds these bytes, until it is `released`."""

    matching: bytes
    released: asyncio.Event


@dataclass(frozen=True)
class _Held:
    """A reply on its way, the last one empty: it goes on when it is due or `released`, whichever is first."""

    reply: bytes
    due: float
    released: asyncio.Event


@dataclass(eq=False)
class _Link:
    """One client's connection and the proxy's own to the server behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    swallow: _Swallow | None = None
    tail: bytes = b""
    held: asyncio.Queue[_Held] = field(default_factory=asyncio.Queue)

    def drop(self) -> None:
        for writer in (self.client, self.server):
            _hang_up(writer)


class FaultProxy:
    """A proxy in front of a server on this machine, in a thread of its own. Forwards everything until a fault is set.

        with valkey_server() as server, FaultProxy(server.url) as proxy:
            client = redis.Redis.from_url(proxy.url)
            proxy.swallow_next_reply(matching=b"RPUSH")

    A fault is in force when its method returns. `connections` counts all that were accepted, `open_connections` those
    there are; `bytes_to_server`, `bytes_to_client` and `requests` what was forwarded; `swallowed` the replies that were
    swallowed, `kept` the requests that were kept.
    """

    def __init__(self, target: str | int, *, tls: ssl.SSLContext | None = None) -> None:
        """Listen in front of `target`, a URL or a loopback port. With `tls`, clients speak it; the target does not."""
        self.connections = 0
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self.requests = 0
        self.swallowed = 0
        self.kept = 0
        self.port = 0
        self._target = f"tcp://{LOOPBACK}:{target}" if isinstance(target, int) else target
        self._tls = tls
        parts = urlsplit(self._target)
        if parts.port is None:
            raise ValueError(f"{target!r} names no port to forward to")
        self._target_address = parts.hostname or LOOPBACK, parts.port
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._to_swallow: deque[_Swallow] = deque()
        self._to_keep: deque[_HoldRequest] = deque()
        self._kept: list[_HoldRequest] = []
        self._delay = 0.0
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.SelectorEventLoop()  # asyncio's own, whatever the tests run in: others hide their sockets
        self._released = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="everturn-fault-proxy", daemon=True)
        self._thread.start()
        try:
            self._do(self._listen)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The target's URL with the proxy's port in it; `rediss` for `redis` with TLS."""
        parts = urlsplit(self._target)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        scheme = "rediss" if self._tls and parts.scheme == "redis" else parts.scheme
        return parts._replace(scheme=scheme, netloc=f"{user}{LOOPBACK}:{self.port}").geturl()

    @property
    def open_connections(self) -> int:
        """The number of clients that are connected now."""
        return len(self._links)

    def cut(self) -> None:
        """Drop every connection now. New ones are accepted; see `refuse`."""
        self._do(self._cut)

    def refuse(self) -> None:
        """Refuse new connections, like a port on which nobody listens. Open ones go on; see `cut`."""
        self._do(self._refuse)

    def delay(self, seconds: float) -> None:
        """Hold back each reply for so long; with `math.inf`, until `restore`. Requests pass."""
        self._do(self._set_delay, seconds)

    def swallow_next_reply(self, *, matching: bytes = b"", then: Afterwards = "silence", after: int = 0) -> None:
        """Forward the next request that holds the bytes `matching`, and let no reply to it through; or the one that
        comes `after` so many of them.

        The connection is then silent until the client gives up (later requests still reach the server), or is closed as
        soon as the server has answered. Each call swallows one reply, so two calls swallow two, on two connections.
        """
        self._do(self._to_swallow.append, _Swallow(matching, then, after))

    def keep_next_request(self, *, matching: bytes = b"") -> None:
        """Keep the next request that holds the bytes `matching`, and all behind it on its connection, until
        `release_requests`: also when its client has long gone. `kept` counts those that were kept."""
        self._do(self._keep, matching)

    def release_requests(self) -> None:
        """Let all requests that were kept go on to the server; those not met yet pass."""
        self._do(self._release)

    def restore(self) -> None:
        """Forward everything again: accept, release replies held back, forget rules not used yet. Requests that
        are kept stay so.

        A connection that lost a reply stays silent.
        """
        self._do(self._restore)

    def close(self) -> None:
        """Drop every connection and stop listening. Does nothing the second time."""
        if self._thread.is_alive():
            self._do(self._shut_down)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # The methods below run in the proxy's thread.

    async def _listen(self) -> None:
        if self._listener is not None:
            return
        # reuse_address: of our own earlier connections some may still linger on the port.
        for attempt in range(5):
            try:
                port = self.port or free_port()
                self._listener = await asyncio.start_server(self._accept, LOOPBACK, port, ssl=self._tls)
                break
            except OSError:
                if self.port or attempt == 4:
                    raise
        self.port = self._listener.sockets[0].getsockname()[1] if self._listener else 0

    async def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for listening in listener.sockets:
            self._loop.remove_reader(listening)
            # A child forked from the test holds the socket too; closing ours alone would leave it listening.
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
        # A connection that was accepted in this step is handed over in the next. A server that closes between the two
        # forgets it, and leaves its socket open (Python 3.11).
        await asyncio.sleep(0)
        listener.close()

    def _cut(self) -> None:
        for link in self._links:
            link.drop()

    def _keep(self, matching: bytes) -> None:
        self._to_keep.append(_HoldRequest(matching, asyncio.Event()))

    def _release(self) -> None:
        self._to_keep.clear()
        for rule in self._kept:
            rule.released.set()
        self._kept.clear()

    def _set_delay(self, seconds: float) -> None:
        self._delay = seconds

    async def _restore(self) -> None:
        self._delay = 0.0
        self._to_swallow.clear()
        self._released.set()
        self._released = asyncio.Event()
        await self._listen()

    async def _shut_down(self) -> None:
        await self._refuse()
        # All tasks, not ours alone: asyncio may have accepted a connection that it has not handed to us yet.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            self._cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        for writer in tuple(self._writers):  # a socket is closed one step of the loop after it was told to be
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(to_client)
        task = self._loop.create_task(self._serve(from_client, to_client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Whatever ended it: it may be cancelled before it began, or while it connects.
        task.add_done_callback(lambda _: _hang_up(to_client))

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._target_address)
        except OSError:
            return
        self._writers.add(to_server)
        link = _Link(to_client, to_server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_until_broken(self._requests(link, from_client)))
                pumps.create_task(_until_broken(self._replies(link, from_server)))
                pumps.create_task(_until_broken(self._deliver(link)))
        finally:
            self._links.discard(link)
            link.drop()

    async def _requests(self, link: _Link, from_client: asyncio.StreamReader) -> None:
        try:
            while request := await from_client.read(_CHUNK):
                self._mark(link, request)
                keep = next((rule for rule in self._to_keep if rule.matching in request), None)
                if keep is not None:
                    self._to_keep.remove(keep)
                    self._kept.append(keep)
                    self.kept += 1
                    await keep.released.wait()
                self.bytes_to_server += len(request)
                self.requests += 1
                link.server.write(request)
                await link.server.drain()
        finally:
            # The client is gone, but the server still has to process what was sent before.
            self._links.discard(link)
            with contextlib.suppress(OSError):
                link.server.write_eof()

    def _mark(self, link: _Link, request: bytes) -> None:
        """Give the link the first rule that its request matches, also if the network cut the request in two."""
        window = link.tail + request
        if link.swallow is None:
            rule = next((rule for rule in self._to_swallow if rule.matching in window), None)
            if rule is not None:
                self._to_swallow.remove(rule)
                if rule.after:
                    self._to_swallow.appendleft(replace(rule, after=rule.after - 1))
                else:
                    link.swallow = rule
        longest = max((len(rule.matching) for rule in self._to_swallow), default=0)
        link.tail = window[-longest:] if longest else b""

    async def _replies(self, link: _Link, from_server: asyncio.StreamReader) -> None:
        swallowed = False
        try:
            while reply := await from_server.read(_CHUNK):
                if link.swallow is None:
                    self._hold(link, reply)
                    continue
                self.swallowed += not swallowed
                swallowed = True
                if link.swallow.then == "close":
                    _hang_up(link.client)
        finally:
            self._hold(link, b"")

    def _hold(self, link: _Link, reply: bytes) -> None:
        # With the event of this moment: a `restore` may come before `_deliver` looks, and leaves another.
        link.held.put_nowait(_Held(reply, self._loop.time() + self._delay, self._released))

    async def _deliver(self, link: _Link) -> None:
        while True:
            held = await link.held.get()
            seconds = held.due - self._loop.time()
            if seconds > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if seconds == math.inf else seconds):
                        await held.released.wait()
            if not held.reply:
                _hang_up(link.client)
                return
            self.bytes_to_client += len(held.reply)
            link.client.write(held.reply)
            await link.client.drain()

    def _do(self, action: Callable[..., Coroutine[Any, Any, None] | None], *arguments: object) -> None:
        """Run this in the proxy's thread and wait until it is done."""
        if not self._thread.is_alive():
            raise RuntimeError("the proxy is closed")

        async def run() -> None:
            under_way = action(*arguments)
            if under_way is not None:
                await under_way

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()


async def _until_broken(pump: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(OSError):
        await pump


def _hang_up(writer: asyncio.StreamWriter) -> None:
    # Shut down first: a child forked from the test holds the socket too, and closing ours alone would tell nobody.
    connection = writer.get_extra_info("socket")
    if connection is not None:  # else it is gone already
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    writer.transport.abort()
