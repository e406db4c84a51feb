"""Which node to ask: one server, the master that sentinels name, or the master of a slot. Written once for both faces.

It looks again when a node is lost or says that it is no longer the right one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from everturn.backends.redis.errors import Refusal, kept_back
from everturn.backends.redis.transport.blocking_pool import Lines
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError

SLOTS = 16384


def _share(deadline: float, *, is_last: bool) -> float:
    """Until when to wait for one of several: one that hangs must not take all the time that the others have, too."""
    now = time.monotonic()
    return deadline if is_last else now + max(0.0, deadline - now) / 4


class Topology(Protocol):
    """Knows the nodes."""

    follows: bool
    """Whether MOVED and ASK are to be followed."""
    sole: Node | None
    """The one node there ever is; None where `node_for` has to be asked."""

    async def node_for(self, key: bytes, deadline: float) -> Node:
        """The master that has the key. Raises MemoryStoreBackendError."""
        ...

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        """Every master, each with a number that stays its own when another node takes over."""
        ...

    def lost(self, node: Node) -> None:
        """The node failed, or is no master any more: look again before the next request."""
        ...

    def moved(self, slot: int, node: Node) -> None:
        """A node said that another has the slot."""
        ...


class Single:
    """One server, whatever happens."""

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


class Unmet:
    """Servers that nobody could greet yet: it is done before the first request to them, and then no more."""

    def __init__(self, servers: Topology, greet: Callable[[float], Awaitable[None]]) -> None:
        self._servers = servers
        self._greet = greet
        self._pending = True
        self.follows = servers.follows
        self.sole: Node | None = None  # so that `node_for` is asked, and greets

    async def _met(self, deadline: float) -> None:
        if not self._pending:
            return
        self._pending = False  # whoever comes meanwhile need not wait
        try:
            await self._greet(deadline)
        except MemoryStoreBackendError as exc:
            self._pending = True
            raise kept_back(exc) from exc
        except BaseException:
            self._pending = True
            raise

    async def node_for(self, key: bytes, deadline: float) -> Node:
        await self._met(deadline)
        return await self._servers.node_for(key, deadline)

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        await self._met(deadline)
        return await self._servers.masters(deadline)

    def lost(self, node: Node) -> None:
        self._servers.lost(node)

    def moved(self, slot: int, node: Node) -> None:
        self._servers.moved(slot, node)


class Watched:
    """The master of a service, as sentinels see it."""

    follows = False
    sole: Node | None = None

    def __init__(self, sentinels: Sequence[Node], service: str, lines: Lines) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._lines = lines
        self._master: Node | None = None

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
                (answer,) = await self._lines.exchange(sentinel, [question], by)
            except MemoryStoreBackendError as exc:
                said.append(exc.args[0])
                continue
            if isinstance(answer, list):
                self._sentinels.insert(0, self._sentinels.pop(number))  # ask the one that answered first next time
                self._master = (answer[0].decode(), int(answer[1]))
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


class Cluster:
    """The masters of a cluster, by slot."""

    follows = True
    sole: Node | None = None

    def __init__(self, seeds: Sequence[Node], lines: Lines) -> None:
        from redis.crc import key_slot

        self._slot_of = key_slot
        self._known: list[Node] = list(seeds)
        self._lines = lines
        self._slots: dict[int, Node] = {}
        self._ranges: list[tuple[int, Node]] = []
        self._stale = True

    async def node_for(self, key: bytes, deadline: float) -> Node:
        if self._stale:
            await self._look(deadline)
        slot = self._slot_of(key)
        node = self._slots.get(slot)
        if node is None:
            self._stale = True
            raise MemoryStoreBackendError(
                f"no node of the cluster serves slot {slot}", outcome="not_written", transient=True
            )
        return node

    async def masters(self, deadline: float) -> list[tuple[int, Node]]:
        await self._look(deadline)
        first: dict[Node, int] = {}
        for slot, node in self._ranges:
            first[node] = min(slot, first.get(node, slot))
        return sorted((slot, node) for node, slot in first.items())

    async def _look(self, deadline: float) -> None:
        """Ask any node that answers; the one that did is asked first the next time."""
        said: list[str] = []
        for node in list(self._known):
            by = _share(deadline, is_last=node == self._known[-1])
            try:
                (answer,) = await self._lines.exchange(node, [("CLUSTER", "SLOTS")], by)
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
