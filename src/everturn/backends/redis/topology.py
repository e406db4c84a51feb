"""The node for a key: one server, the master that sentinels name, or the master of a slot of a cluster.

The nodes are looked up again when one is lost, or says that it is no longer the right one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from everturn import events
from everturn.backends.redis.errors import Refusal, held_back
from everturn.backends.redis.transport.blocking_pool import Transport
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError

SLOTS = 16384


def _share(deadline: float, *, is_last: bool) -> float:
    """Return the deadline for one of several nodes: one that hangs must not take the time of the others."""
    now = time.monotonic()
    return deadline if is_last else now + max(0.0, deadline - now) / 4


def _tell_failover(before: Sequence[Node], now: Sequence[Node]) -> None:
    """Tell of masters that were not masters before, unless none was known."""
    old = [f"{host}:{port}" for host, port in dict.fromkeys(before) if (host, port) not in now]
    new = [f"{host}:{port}" for host, port in dict.fromkeys(now) if (host, port) not in before]
    if before and new:
        events.tell(events.FAILED_OVER, events.Source("redis", new[0]), old=", ".join(old), new=", ".join(new))


class Topology(Protocol):
    """The nodes of a deployment."""

    follows: bool
    """Whether to follow MOVED and ASK."""
    sole: Node | None
    """The one node there ever is; None where `node_for` has to be asked."""

    async def node_for(self, key: bytes, deadline: float) -> Node:
        """Return the master that has the key. Raises MemoryStoreBackendError."""
        ...

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        """Return every master, each with a number that stays the same when another node takes over."""
        ...

    def lost(self, node: Node) -> None:
        """Note that a node failed, or is no master any more: look up again before the next request."""
        ...

    def moved(self, slot: int, node: Node) -> None:
        """Note that a node said that another one has the slot."""
        ...


class SingleServer:
    """One server, at a fixed address."""

    follows = False

    def __init__(self, node: Node) -> None:
        self._node = node
        self.sole: Node | None = node

    async def node_for(self, key: bytes, deadline: float) -> Node:  # noqa: ARG002 - the protocol's
        return self._node

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:  # noqa: ARG002 - the protocol's
        return [(0, self._node)]

    def lost(self, node: Node) -> None:
        pass

    def moved(self, slot: int, node: Node) -> None:
        pass


class CheckedFirst:
    """Servers that are checked before the first request to them, and then no more: those of an asynchronous client."""

    def __init__(self, servers: Topology, check: Callable[[float], Awaitable[None]]) -> None:
        self._servers = servers
        self._check = check
        self._pending = True
        self.follows = servers.follows
        self.sole: Node | None = None  # so that `node_for` is asked, which checks

    async def _checked(self, deadline: float) -> None:
        if not self._pending:
            return
        self._pending = False  # another caller need not wait meanwhile
        try:
            await self._check(deadline)
        except MemoryStoreBackendError as exc:
            self._pending = True
            raise held_back(exc) from exc
        except BaseException:
            self._pending = True
            raise

    async def node_for(self, key: bytes, deadline: float) -> Node:
        await self._checked(deadline)
        return await self._servers.node_for(key, deadline)

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        await self._checked(deadline)
        return await self._servers.masters(deadline)

    def lost(self, node: Node) -> None:
        self._servers.lost(node)

    def moved(self, slot: int, node: Node) -> None:
        self._servers.moved(slot, node)


class SentinelTopology:
    """The master of a service, as the sentinels name it."""

    follows = False
    sole: Node | None = None

    def __init__(self, sentinels: Sequence[Node], service: str, transport: Transport) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._transport = transport
        self._master: Node | None = None
        self._before: Node | None = None  # the latest master that was known

    async def node_for(self, key: bytes, deadline: float) -> Node:  # noqa: ARG002 - the protocol's
        return self._master or await self._find(deadline)

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        return [(0, await self.node_for(b"", deadline))]

    async def _find(self, deadline: float) -> Node:
        said: list[str] = []
        for number, sentinel in enumerate(self._sentinels):
            question = ("SENTINEL", "get-master-addr-by-name", self._service)
            by = _share(deadline, is_last=number == len(self._sentinels) - 1)
            try:
                (answer,) = await self._transport.exchange(sentinel, [question], by)
            except MemoryStoreBackendError as exc:
                said.append(exc.args[0])
                continue
            if isinstance(answer, list):
                self._sentinels.insert(0, self._sentinels.pop(number))  # ask the one that answered first next time
                self._master = (answer[0].decode(), int(answer[1]))
                _tell_failover([self._before] if self._before else [], [self._master])
                self._before = self._master
                return self._master
            said.append(f"{sentinel[0]}:{sentinel[1]} knows no service {self._service!r}")
        raise MemoryStoreBackendError(
            f"no sentinel names a master: {'; '.join(said)}", outcome="not_written", transient=True
        )

    def lost(self, node: Node) -> None:
        if self._master == node:
            self._master = None

    def moved(self, slot: int, node: Node) -> None:
        pass


class ClusterTopology:
    """The masters of a cluster, by slot."""

    follows = True
    sole: Node | None = None

    def __init__(self, seeds: Sequence[Node], transport: Transport) -> None:
        from redis.crc import key_slot

        self._slot_of = key_slot
        self._known: list[Node] = list(seeds)
        self._transport = transport
        self._slots: dict[int, Node] = {}
        self._ranges: list[tuple[int, Node]] = []
        self._stale = True

    async def node_for(self, key: bytes, deadline: float) -> Node:
        if self._stale:
            await self._read_slots(deadline)
        slot = self._slot_of(key)
        node = self._slots.get(slot)
        if node is None:
            self._stale = True
            raise MemoryStoreBackendError(
                f"no node of the cluster serves slot {slot}", outcome="not_written", transient=True
            )
        return node

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        await self._read_slots(deadline)
        first: dict[Node, int] = {}
        for slot, node in self._ranges:
            first[node] = min(slot, first.get(node, slot))
        return sorted((slot, node) for node, slot in first.items())

    async def _read_slots(self, deadline: float) -> None:
        """Ask the nodes in turn until one answers; that one is asked first the next time."""
        said: list[str] = []
        for node in list(self._known):
            by = _share(deadline, is_last=node == self._known[-1])
            try:
                (answer,) = await self._transport.exchange(node, [("CLUSTER", "SLOTS")], by)
            except MemoryStoreBackendError as exc:
                said.append(exc.args[0])
                continue
            if isinstance(answer, Refusal):
                said.append(answer.text)
                continue
            self._learn(node, answer)
            return
        raise MemoryStoreBackendError(
            f"no node tells the cluster's slots: {'; '.join(said)}", outcome="not_written", transient=True
        )

    def _learn(self, told_by: Node, answer: Sequence[Any]) -> None:
        slots: dict[int, Node] = {}
        ranges: list[tuple[int, Node]] = []
        known = [told_by]
        for first, last, *nodes in answer:
            places = [(host.decode() if host else told_by[0], int(port)) for host, port, *_ in nodes]
            ranges.append((int(first), places[0]))
            slots.update(dict.fromkeys(range(int(first), int(last) + 1), places[0]))
            known += (place for place in places if place not in known)
        _tell_failover([node for _, node in self._ranges], [node for _, node in ranges])
        self._slots, self._ranges = slots, ranges
        self._known = known + [node for node in self._known if node not in known]
        self._stale = False

    def lost(self, node: Node) -> None:
        self._stale = True
        if node in self._known:
            self._known.append(self._known.pop(self._known.index(node)))  # asked last

    def moved(self, slot: int, node: Node) -> None:
        self._slots[slot] = node
        self._stale = True
        if node not in self._known:
            self._known.insert(0, node)
