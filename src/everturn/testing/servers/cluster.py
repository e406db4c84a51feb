"""A Valkey Cluster: forms it, knows the masters and replicas of the moment, and when it is whole.

Each node is a ValkeyServer, which can be killed and paused by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from everturn.testing.servers.binaries import LOOPBACK, ServerError, free_port
from everturn.testing.servers.server import Setting, Supervisor, wait_until
from everturn.testing.servers.server_group import ServerGroup
from everturn.testing.servers.valkey import ValkeyServer, online_replicas

_SLOTS = 16_384


class ClusterNode(ValkeyServer):
    """A node of a cluster, under an id that it keeps across restarts."""

    node_id = ""
    bus_port = 0

    def view(self) -> list[NodeView]:
        """Return the cluster as this node sees it."""
        return [_parse(line) for line in str(self.command("CLUSTER", "NODES")).splitlines()]

    def _settings(self) -> dict[str, Setting]:
        self.bus_port = free_port()
        return {**super()._settings(), "cluster_enabled": True, "cluster_port": self.bus_port}


@dataclass(frozen=True)
class NodeView:
    """One node as another sees it."""

    node_id: str
    port: int
    flags: frozenset[str]
    master_id: str | None
    slots: tuple[range, ...]

    @property
    def is_settled(self) -> bool:
        """Whether the node is met and not suspected of being down."""
        return not self.flags & {"handshake", "noaddr", "fail", "fail?"}


class ValkeyCluster(ServerGroup):
    """A Valkey Cluster on loopback ports. `nodes` never changes; `masters` and `replicas` are asked of the nodes."""

    def __init__(self, nodes: tuple[ClusterNode, ...]) -> None:
        super().__init__(nodes)
        self.nodes = nodes

    @property
    def url(self) -> str:
        """The URL for clients: `redis+cluster://host:port,host:port,...`, with every node."""
        return f"redis+cluster://{self.nodes[0].login}{','.join(node.address for node in self.nodes)}"

    @property
    def port(self) -> int:
        """The port of the first node that answers."""
        return self._witness().port

    @property
    def masters(self) -> list[ClusterNode]:
        """The nodes that own slots now, in the order of their first slot; a dead one until another is promoted."""
        owners = [seen for seen in self._witness().view() if seen.slots]
        return [self._node(seen.node_id) for seen in sorted(owners, key=lambda seen: seen.slots[0].start)]

    @property
    def replicas(self) -> list[ClusterNode]:
        """The nodes that follow a master now."""
        return [self._node(seen.node_id) for seen in self._witness().view() if seen.master_id]

    def master_of(self, key: str) -> ClusterNode:
        """Find the node that owns the key's slot now."""
        slot = self._witness().command("CLUSTER", "KEYSLOT", key)
        return next(
            self._node(seen.node_id) for seen in self._witness().view() if any(slot in part for part in seen.slots)
        )

    def replicas_of(self, master: ClusterNode) -> list[ClusterNode]:
        """List the nodes that follow this master now."""
        return [self._node(seen.node_id) for seen in self._witness().view() if seen.master_id == master.node_id]

    def kill_master_of(self, key: str) -> ClusterNode:
        """SIGKILL the node that owns the key's slot, and return it. `wait_until_whole` waits for the promotion."""
        master = self.master_of(key)
        master.kill()
        return master

    def _faults(self) -> Iterator[str]:
        answering = {node.node_id: node for node in self.nodes if node.answering}
        owners = set()
        for node in answering.values():
            view = {seen.node_id: seen for seen in node.view()}
            owners.add(frozenset((seen.node_id, part) for seen in view.values() for part in seen.slots))
            following = [seen for seen in view.values() if seen.master_id == node.node_id and seen.node_id in answering]
            if node.info("cluster_info")["cluster_state"] != "ok":
                yield f"{node} says the cluster is not ok"
            if any(seen.slots and seen.node_id not in answering for seen in view.values()):
                yield f"{node} still sees a dead master"
            if any(node_id not in view or not view[node_id].is_settled for node_id in answering):
                yield f"{node} does not see every node"
            # A master that lost its slots while it was paused is no replica yet in the view of some.
            if any(not (seen.slots or seen.master_id) for seen in view.values() if seen.node_id in answering):
                yield f"{node} sees a node without slots that follows no master"
            if online_replicas(node) != len(following):
                yield f"{node} has replicas that are not online"
            if view[node.node_id].master_id and not node.in_sync():
                yield f"{node} is not in sync with its master"
        if len(owners) != 1:
            yield f"nodes see {len(owners)} ways to share the slots"

    def _node(self, node_id: str) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def _witness(self) -> ClusterNode:
        for node in self.nodes:
            if node.answering:
                return node
        raise ServerError("no node of the cluster answers")


@contextmanager
def valkey_cluster(
    masters: int = 3, replicas: int = 1, *, node_timeout: float = 1.0, **config: Setting
) -> Iterator[ValkeyCluster]:
    """Run a Valkey Cluster until the end of the block; each of the `masters` has this many `replicas`.

        with valkey_cluster(masters=3, replicas=1) as cluster:
            dead = cluster.kill_master_of("some key")
            cluster.wait_until_whole()

    When the block begins every node says that the cluster is ok, and all replicas are in sync. A master that is silent
    for `node_timeout` seconds is replaced about a second later. Other keywords as for `valkey_server`.
    """
    timing: dict[str, Setting] = {
        "cluster_node_timeout": round(node_timeout * 1000),
        "cluster_replica_validity_factor": 0,  # promote, however long the link was down
        "cluster_allow_replica_migration": False,  # a replica stays with its shard, so a test knows where it is
        "repl_ping_replica_period": 1,
    }
    with Supervisor() as supervisor:
        nodes = tuple(
            ClusterNode(supervisor, f"node-{n}", {**timing, **config}) for n in range(masters * (1 + replicas))
        )
        for node in nodes:
            node.start()
            node.node_id = str(node.command("CLUSTER", "MYID"))
        _form(nodes, masters)
        cluster = ValkeyCluster(nodes)
        cluster.wait_until_whole()
        yield cluster


def _form(nodes: tuple[ClusterNode, ...], masters: int) -> None:
    for n, node in enumerate(nodes):
        node.command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        if n < masters:
            node.command("CLUSTER", "ADDSLOTSRANGE", n * _SLOTS // masters, (n + 1) * _SLOTS // masters - 1)
        for other in nodes[:n]:  # all to all: faster than waiting for the gossip
            node.command("CLUSTER", "MEET", LOOPBACK, other.port, other.bus_port)
    for n, node in enumerate(nodes[masters:]):
        master = nodes[n % masters]
        wait_until(lambda node=node, master=master: _knows(node, master), f"{node} has met {master}")  # type: ignore[misc]
        node.command("CLUSTER", "REPLICATE", master.node_id)


def _knows(node: ClusterNode, other: ClusterNode) -> bool:
    return any(seen.node_id == other.node_id and seen.is_settled for seen in node.view())


def _parse(line: str) -> NodeView:
    # id address@bus,host flags master ping pong epoch link slot slot-slot [migrating]
    node_id, address, flags, master, _, _, _, _, *slots = line.split()
    parts = [part.partition("-") for part in slots if not part.startswith("[")]
    return NodeView(
        node_id=node_id,
        port=int(address.partition("@")[0].rpartition(":")[2]),
        flags=frozenset(flags.split(",")),
        master_id=None if master == "-" else master,
        slots=tuple(range(int(first), int(last or first) + 1) for first, _, last in parts),
    )
