"""Sending commands and getting replies: the one thing that differs between blocking and asynchronous clients.

This is the blocking side, and the protocol both follow; loop_lines.py is the other. Which node to talk to, and what the
replies mean, is decided elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everturn.backends.redis import faults
from everturn.backends.redis.address import Node
from everturn.backends.redis.line import speak
from everturn.backends.redis.wire import Command
from everturn.backends.shelf import Shelf


class Lines(Protocol):
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
        """Send the commands in one go on one connection; a reply for each, errors of the server as Refusal.

        `shared`: they may travel together with others', and are seen through to their outcome once sent. `wait`: a
        last command, which one of those that travel together can send for all. Raises MemoryStoreBackendError:
        not_written if nothing was sent, unknown if an answer is missing.
        """
        ...

    async def close(self) -> None: ...


class Lender(Protocol):
    """Lends connections to one node."""

    def take(self, deadline: float) -> Any:
        """A connection that is ready. Raises MemoryStoreBackendError."""
        ...

    def converse(self, connection: Any, commands: Sequence[Command], deadline: float) -> list[Any]:
        """Send the commands on a connection it lent, and read a reply for each. Raises whatever the driver does."""
        ...

    def give_back(self, connection: Any) -> None: ...

    def drop(self, connection: Any) -> None:
        """Take back a connection that failed, and let go of those that will fail next."""
        ...

    def close(self) -> None: ...


def where(node: Node) -> str:
    return f"Redis at {node[0]}:{node[1]}" if node[0] else "Redis"


class Pool:
    """A bounded number of connections of our own; whoever finds all of them busy waits."""

    def __init__(self, node: Node, make: Callable[[Node], Any], size: int) -> None:
        self._node = node
        self._make = make
        self._size = size
        self._shelf = self._new_shelf()

    def _new_shelf(self) -> Shelf[Any]:
        self._pid = os.getpid()
        return Shelf(self._size, lambda: faults.exhausted(where(self._node), self._size), faults.closed)

    def take(self, deadline: float) -> Any:
        if self._pid != os.getpid() and not self._shelf.is_closed:
            self._shelf = self._new_shelf()  # forked: the parent's connections are the parent's
        connection = self._shelf.take(deadline)
        try:
            if connection is None:
                connection = self._make(self._node)
            connection.ready(deadline)
        except BaseException as exc:
            self.drop(connection)
            if isinstance(exc, Exception):
                raise faults.unsent(where(self._node), exc) from exc
            raise
        return connection

    @staticmethod
    def converse(connection: Any, commands: Sequence[Command], deadline: float) -> list[Any]:
        replies: list[Any] = connection.converse(commands, deadline)
        return replies

    def give_back(self, connection: Any) -> None:
        self._shelf.give_back(connection)
        if self._shelf.is_closed:
            _disconnect(self._shelf.clear())

    def drop(self, connection: Any) -> None:
        self._shelf.forget()
        _disconnect([*filter(None, [connection]), *self._shelf.clear()])

    def close(self) -> None:
        _disconnect(self._shelf.close())


def _disconnect(connections: Sequence[Any]) -> None:
    for connection in connections:
        connection.disconnect()


class Borrowed:
    """Connections of a client that was given to us, which stays its owner's."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def take(self, _deadline: float) -> Any:
        try:
            return get_connection(self._pool)
        except Exception as exc:
            raise faults.unsent("Redis", exc) from exc

    @staticmethod
    def converse(connection: Any, commands: Sequence[Command], _deadline: float) -> list[Any]:
        return speak(connection, commands)

    def give_back(self, connection: Any) -> None:
        self._pool.release(connection)

    def drop(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)

    def close(self) -> None:
        pass


def get_connection(pool: Any) -> Any:
    """Older redis-py, and valkey-py, want to hear a command's name; newer ones warn about it."""
    try:
        return pool.get_connection()
    except TypeError:
        return pool.get_connection("EVALSHA")


class BlockingLines:
    """Waits in the calling thread; its coroutines never suspend. Safe to share between threads."""

    def __init__(self, lender: Callable[[Node], Lender]) -> None:
        self._lender = lender
        self._lenders: dict[Node, Lender] = {}
        self._closed = False

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,  # noqa: ARG002 - nobody else's commands wait here
        wait: Command | None = None,
    ) -> list[Any]:
        if wait:
            commands = [*commands, wait]
        lender = self._lenders.get(node) or self._new_lender(node)
        connection = lender.take(deadline)
        try:
            replies = lender.converse(connection, commands, deadline)
        except BaseException as exc:
            lender.drop(connection)
            if isinstance(exc, Exception):
                raise faults.unanswered(where(node), exc) from exc
            raise
        lender.give_back(connection)
        return replies

    def _new_lender(self, node: Node) -> Lender:
        if self._closed:
            raise faults.closed()
        return self._lenders.setdefault(node, self._lender(node))

    async def close(self) -> None:
        self._closed = True
        lenders, self._lenders = self._lenders, {}
        for lender in lenders.values():
            lender.close()
