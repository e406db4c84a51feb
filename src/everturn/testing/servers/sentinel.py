"""A Valkey master, its replicas and the sentinels that watch them: the master of the moment, and when all is well.

Each server is a ValkeyServer, which can be killed and paused by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everturn.testing.servers.binaries import LOOPBACK, ServerError
from everturn.testing.servers.server import Setting, Supervisor
from everturn.testing.servers.server_group import ServerGroup
from everturn.testing.servers.valkey import ValkeyServer, config_lines, online_replicas, start_replicas

# Milliseconds. By default sentinels look every ten seconds, greet every two, ask each other every second, and after a
# pause of the machine distrust their clock for thirty: too slow for a test.
_FAST_PERIODS = {"info-period": 200, "publish-period": 200, "ping-period": 200, "ask-period": 100, "tilt-period": 1000}


class SentinelNode(ValkeyServer):
    """One sentinel. It saves its knowledge in its own configuration file."""

    def __init__(self, supervisor: Supervisor, name: str, monitor: str) -> None:
        super().__init__(supervisor, name, {})
        self._monitor = monitor

    def restart(self) -> None:
        """Start the sentinel again, on the same port, with its saved configuration."""
        super().restart()
        self.use_fast_periods()

    def use_fast_periods(self) -> None:
        """Make the sentinel look and talk often. A restart resets this."""
        self.command("SENTINEL", "DEBUG", *(word for pair in _FAST_PERIODS.items() for word in pair))

    def _configure(self) -> None:
        listening = config_lines({"bind": LOOPBACK, "port": self.port, "dir": str(self.directory)})
        self._config_file.write_text(listening + self._monitor)

    def _argv(self) -> list[str]:
        return [*super()._argv(), "--sentinel"]


class ValkeySentinel(ServerGroup):
    """Valkey servers under sentinels. `servers` and `sentinels` never change; `master` is asked of the sentinels.

    Faults to the whole are faults to the servers; the sentinels stay.
    """

    def __init__(self, name: str, servers: tuple[ValkeyServer, ...], sentinels: tuple[SentinelNode, ...]) -> None:
        super().__init__(servers)
        self.name = name
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        """The URL for clients: `redis+sentinel://host:port,host:port,.../name/0`, with every sentinel."""
        sentinels = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{self.servers[0].login}{sentinels}/{self.name}/0"

    @property
    def port(self) -> int:
        """The port of the first sentinel that answers."""
        return self._witness().port

    @property
    def master(self) -> ValkeyServer:
        """The server that the sentinels name as master now; a dead one until another is promoted."""
        port = _master_port(self._witness(), self.name)
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[ValkeyServer]:
        """The servers that are not master now."""
        master = self.master
        return [server for server in self.servers if server is not master]

    def kill_master(self) -> ValkeyServer:
        """SIGKILL the master, and return it. `wait_until_whole` waits for the promotion."""
        master = self.master
        master.kill()
        return master

    def _faults(self) -> Iterator[str]:
        sentinels = [sentinel for sentinel in self.sentinels if sentinel.answering]
        following = {server.port: server for server in self.servers if server.answering}
        named = {_master_port(sentinel, self.name) for sentinel in sentinels}
        yield from (f"{sentinel} is not at ease" for sentinel in sentinels if not self._is_at_ease(sentinel))
        if len(named) != 1 or not named <= following.keys():
            yield f"the sentinels name {named} as master, of {list(following)}"
            return
        master = following.pop(named.pop())
        if master.info("replication")["role"] != "master":
            yield f"{master} is not master yet"
        if online_replicas(master) != len(following):
            yield f"{master} has replicas that are not online"
        yield from (
            f"{server} does not follow {master}" for server in following.values() if not _follows(server, master)
        )

    def _is_at_ease(self, sentinel: SentinelNode) -> bool:
        """Whether the sentinel knows all the others and all servers, and is not in the middle of a failover."""
        reply = sentinel.command("SENTINEL", "MASTER", self.name)
        facts = [str(fact) for fact in reply] if isinstance(reply, list) else []
        seen = dict(zip(facts[::2], facts[1::2], strict=True))
        others = int(seen["num-other-sentinels"]), int(seen["num-slaves"])
        return others == (len(self.sentinels) - 1, len(self.servers) - 1) and "failover" not in seen["flags"]

    def _witness(self) -> SentinelNode:
        for sentinel in self.sentinels:
            if sentinel.answering:
                return sentinel
        raise ServerError("no sentinel answers")


@contextmanager
def valkey_sentinel(
    replicas: int = 2, sentinels: int = 3, *, name: str = "everturn", down_after: float = 0.7, **config: Setting
) -> Iterator[ValkeySentinel]:
    """Run a Valkey master, its replicas and sentinels that know it as `name`, until the end of the block.

        with valkey_sentinel(replicas=2) as watched:
            dead = watched.kill_master()
            watched.wait_until_whole()

    A master that is silent for `down_after` seconds is replaced one to two seconds later. Other keywords as for
    `valkey_server`.
    """
    with Supervisor() as supervisor:
        master = ValkeyServer(supervisor, "valkey", config)
        master.start()
        servers = (master, *start_replicas(supervisor, master, replicas, config))
        monitor = _monitor_lines(name, master, sentinels // 2 + 1, down_after, config.get("requirepass"))
        nodes = tuple(SentinelNode(supervisor, f"sentinel-{n}", monitor) for n in range(1, sentinels + 1))
        for node in nodes:
            node.start()
            node.use_fast_periods()
        watched = ValkeySentinel(name, servers, nodes)
        watched.wait_until_whole()
        yield watched


def _monitor_lines(name: str, master: ValkeyServer, quorum: int, down_after: float, password: Setting | None) -> str:
    lines = [
        f"sentinel monitor {name} {LOOPBACK} {master.port} {quorum}",
        f"sentinel down-after-milliseconds {name} {round(down_after * 1000)}",
        f"sentinel failover-timeout {name} 3000",
        f"sentinel parallel-syncs {name} 16",
    ]
    if password is not None:
        lines.append(f"sentinel auth-pass {name} {password}")
    return "\n".join([*lines, ""])


def _master_port(sentinel: SentinelNode, name: str) -> int:
    reply = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    return int(str(reply[1])) if isinstance(reply, list) else 0


def _follows(server: ValkeyServer, master: ValkeyServer) -> bool:
    replication = server.info("replication")
    return replication.get("master_port") == str(master.port) and replication.get("master_link_status") == "up"
