"""Sending commands and getting replies: the one thing that differs between blocking and asynchronous clients.

This is the blocking side, and the protocol both follow; async_pool.py is the other. Which node to talk to, and what the
replies mean, is decided elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everturn.backends._shared.thread_pool import BoundedPool
from everturn.backends.redis import errors
from everturn.backends.redis.transport.blocking_connection import speak
from everturn.backends.redis.transport.resp import Command
from everturn.backends.redis.url import Node
from everturn.core.signal_exceptions import is_of_a_handler


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
    """Has connections to one node."""

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        """See Lines.exchange: on one connection, which nobody else has meanwhile."""
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

    def _new_shelf(self) -> BoundedPool[Any]:
        self._pid = os.getpid()
        return BoundedPool(self._size, lambda: errors.exhausted(where(self._node), self._size), errors.closed)

    def exchange(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        if self._pid != os.getpid() and not self._shelf.is_closed:
            self._shelf = self._new_shelf()  # forked: the parent's connections are the parent's
        shelf = self._shelf
        connection = shelf.take(deadline)
        try:
            if connection is None:
                connection = self._make(self._node)
            replies: list[Any] = connection.converse(commands, deadline, is_alone=shelf.lent == 1)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            shelf.forget()
            _disconnect([*filter(None, [connection]), *shelf.clear()])  # the others will fail next
            has_sent = connection is not None and connection.has_sent
            errors.raise_as(exc, errors.unanswered if has_sent else errors.unsent, where(self._node))
        shelf.give_back(connection)
        if shelf.is_closed:
            _disconnect(shelf.clear())
        return replies

    def close(self) -> None:
        _disconnect(self._shelf.close())


def _disconnect(connections: Sequence[Any]) -> None:
    for connection in connections:
        connection.disconnect()


class Borrowed:
    """Connections of a client that was given to us, which stays its owner's."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def exchange(self, commands: Sequence[Command], _deadline: float) -> list[Any]:
        try:
            connection = get_connection(self._pool)
        except Exception as exc:  # noqa: BLE001 - raised again, as what it is
            errors.raise_as(exc, errors.unsent, "Redis")
        try:
            return speak(connection, commands)
        except BaseException as exc:  # noqa: BLE001 - raised again, as what it is
            connection.disconnect()
            errors.raise_as(exc, errors.unanswered, "Redis")
        finally:
            self._pool.release(connection)

    def close(self) -> None:
        pass


def get_connection(pool: Any) -> Any:
    """Older redis-py, and valkey-py, want to hear a command's name; newer ones warn about it."""
    try:
        return pool.get_connection()
    except TypeError as exc:
        if is_of_a_handler(exc):
            raise
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
        return lender.exchange(commands, deadline)

    def _new_lender(self, node: Node) -> Lender:
        if self._closed:
            raise errors.closed()
        return self._lenders.setdefault(node, self._lender(node))

    async def close(self) -> None:
        self._closed = True
        lenders, self._lenders = self._lenders, {}
        for lender in lenders.values():
            lender.close()
