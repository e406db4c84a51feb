"""The blocking transport, and the protocol that it shares with async_pool.py: commands to a node, replies back.

Which node gets a command, and what a reply means, is decided in client.py and above.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everturn.backends._shared.connection_watch import ConnectionWatch
from everturn.backends._shared.thread_pool import BoundedPool
from everturn.backends.redis import errors
from everturn.backends.redis.transport.blocking_connection import BlockingConnection, exchange_by_redis_py
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.transport.resp import Command
from everturn.backends.redis.url import Node
from everturn.core.signal_exceptions import is_of_a_handler
from everturn.events import Source


class Transport(Protocol):
    """Connections to any number of nodes."""

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,
        wait: Command | None = None,
    ) -> list[Any]:
        """Send the commands together on one connection. Returns a reply for each; errors of the server as Refusal.

        `shared`: they may be sent together with the commands of other callers. Once sent, their replies are awaited
        even if the caller is cancelled. `wait`: a last command (WAIT), which is sent once for all that are sent
        together. Raises MemoryStoreBackendError: "not_written" if nothing was sent, "unknown" if a reply is missing.
        """
        ...

    async def close(self) -> None: ...


class NodeConnections(Protocol):
    """Blocking connections to one node."""

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        """Send the commands on a connection that nobody else uses meanwhile. Otherwise as Transport.exchange."""
        ...

    def close(self) -> None: ...


def where(node: Node) -> str:
    """Name a node in an error message."""
    return f"Redis at {node[0]}:{node[1]}" if node[0] else "Redis"


class BlockingPool:
    """A bounded number of connections of our own to one node. A caller who finds all of them busy waits."""

    def __init__(self, node: Node, login: Login, size: int) -> None:
        self._node = node
        self._login = login
        self._size = size
        self._watch = ConnectionWatch(Source("redis", where(node)))
        self._pool = self._new_pool()

    def _new_pool(self) -> BoundedPool[BlockingConnection]:
        self._pid = os.getpid()
        exhausted = lambda: errors.exhausted(where(self._node), self._size)  # noqa: E731 - as an argument, it is too long
        return BoundedPool(self._size, exhausted, errors.closed, self._watch.waited)

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        if self._pid != os.getpid() and not self._pool.is_closed:
            # We are a child process: the parent goes on using its connections. Our copies of their sockets are closed.
            _disconnect(self._pool.idle_after_fork())
            self._pool = self._new_pool()
        pool = self._pool
        place = pool.take(deadline)
        connection = place.item
        try:
            if connection is None:
                connection = place.item = BlockingConnection(self._node, self._login)
            replies = connection.exchange(commands, deadline)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            pool.forget(place)
            self._watch.lost(exc)
            # Where one connection failed, the idle ones have most likely failed, too.
            _disconnect([*filter(None, [connection]), *pool.clear()])
            has_sent = connection is not None and connection.has_sent
            errors.raise_as(exc, errors.unanswered if has_sent else errors.unsent, where(self._node))
        pool.give_back(place)
        if self._watch.lost_at is not None:
            self._watch.answered()
        if pool.is_closed:
            _disconnect(pool.clear())
        return replies

    def close(self) -> None:
        _disconnect(self._pool.close())


def _disconnect(connections: Sequence[BlockingConnection]) -> None:
    for connection in connections:
        connection.disconnect()


class ClientPool:
    """Connections of a client that was given to us. The client stays its owner's."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def exchange(self, commands: Sequence[Command], _deadline: float) -> list[Any]:
        try:
            connection = get_connection(self._pool)
        except Exception as exc:  # noqa: BLE001 - raised again, as what it is
            errors.raise_as(exc, errors.unsent, "Redis")
        try:
            return exchange_by_redis_py(connection, commands)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            connection.disconnect()
            errors.raise_as(exc, errors.unanswered, "Redis")
        finally:
            self._pool.release(connection)

    def close(self) -> None:
        pass


def get_connection(pool: Any) -> Any:
    """Take a connection from a pool of redis-py or valkey-py. Older releases want the name of a command, newer ones
    warn about it."""
    try:
        return pool.get_connection()
    except TypeError as exc:
        if is_of_a_handler(exc):
            raise
        return pool.get_connection("EVALSHA")


class BlockingTransport:
    """Waits in the calling thread: its coroutines never suspend. Safe to share between threads."""

    def __init__(self, connections_to: Callable[[Node], NodeConnections]) -> None:
        self._connections_to = connections_to
        self._nodes: dict[Node, NodeConnections] = {}
        self._closed = False

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,  # noqa: ARG002 - a thread sends its own commands only
        wait: Command | None = None,
    ) -> list[Any]:
        if wait:
            commands = [*commands, wait]
        connections = self._nodes.get(node) or self._new_node(node)
        return connections.exchange(commands, deadline)

    def _new_node(self, node: Node) -> NodeConnections:
        if self._closed:
            raise errors.closed()
        return self._nodes.setdefault(node, self._connections_to(node))

    async def close(self) -> None:
        self._closed = True
        nodes, self._nodes = self._nodes, {}
        for connections in nodes.values():
            connections.close()
