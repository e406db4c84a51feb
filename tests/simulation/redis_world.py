"""A world on Redis: the real backend and its scripts, over a simulated network to one server or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.backend import Backend
from everturn.backends.redis import errors, scripts
from everturn.backends.redis.backend import RedisBackend
from everturn.backends.redis.client import Sender
from everturn.backends.redis.keys import KeyNames
from everturn.backends.redis.topology import SentinelTopology, SingleServer
from everturn.backends.redis.transport.resp import Command, ScriptCall
from everturn.backends.redis.url import Node
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.leases import LeaseRow, Served
from tests.simulation.network import Attempt, Network
from tests.simulation.redis_server import RedisServer
from tests.simulation.schedules import Fault, Schedule
from tests.simulation.world import World

SENTINEL: Node = ("sentinel", 26379)
WHERE = "Redis"
MICROSECONDS = 2e-6  # a server tells its time in these: the end of a life is cut to them, and so is the time
_NAMES = {value.sha: name.lower() for name, value in vars(scripts).items() if isinstance(value, scripts.Script)}


class SimulatedLines:
    """Connections of one process: every exchange is the network's."""

    def __init__(self, world: RedisWorld, host: Host) -> None:
        self._world = world
        self._host = host

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,
        wait: Command | None = None,
    ) -> list[Any]:
        payload = [*commands, *([] if wait is None else [wait])]
        replies: list[Any] = await self._world.network.exchange(
            self._host, node, payload, _named(commands), deadline, change=shared
        )
        return replies

    async def close(self) -> None: ...


class ObservingLines:
    """Connections of the observer: no network, no time."""

    def __init__(self, world: RedisWorld) -> None:
        self._world = world

    async def exchange(
        self,
        node: Node,
        commands: Sequence[Command],
        deadline: float,
        *,
        shared: bool = False,
        wait: Command | None = None,
    ) -> list[Any]:
        return self._world.servers[self._world.master].execute(commands)

    async def close(self) -> None: ...


def _named(commands: Sequence[Command]) -> str:
    first = commands[0]
    if isinstance(first, ScriptCall):
        return _NAMES.get(first.script.sha, "a script")
    if first[0] == "EVAL":
        return "a script in full"
    return " ".join(part if isinstance(part, str) else "..." for part in first[:2])


class RedisWorld(World):
    """Clients, a network, a server or a pair of them that sentinels watch."""

    def __init__(self, schedule: Schedule) -> None:
        self.nodes: list[Node] = [(f"server-{number}", 6379) for number in range(len(schedule.servers))]
        self.clocks = {
            node: Clock(EPOCH + server.ahead, server.rate)
            for node, server in zip(self.nodes, schedule.servers, strict=True)
        }
        super().__init__(schedule)
        self.judge.leases.has_replicas = len(self.nodes) > 1
        self.servers = {node: RedisServer(self._clock_of(node)) for node in self.nodes}
        self.master = self.nodes[0]
        self._load(({}, {}))
        self._masters = [(0.0, self.master)]
        self._keys = KeyNames("")
        self._observer = RedisBackend(Sender(ObservingLines(self), SingleServer(self.nodes[0])), "")
        self.network = Network(
            self.scheduler,
            self.deliveries,
            self._deliver,
            lambda exc, **_: errors.unanswered(WHERE, exc),
            lambda exc: errors.unsent(WHERE, exc),
            self.tell,
        )
        loses = any(fault.kind in ("restart", "failover") and fault.lose for fault in schedule.faults)
        self._images: list[tuple[float, Any, Any]] | None = [] if loses else None

    def _clock_of(self, node: Node) -> Any:
        clock = self.clocks[node]
        return lambda: clock.at(self.scheduler.now)

    def backend_for(self, host: Host) -> Backend:
        lines = SimulatedLines(self, host)
        if len(self.nodes) == 1:
            return RedisBackend(Sender(lines, SingleServer(self.nodes[0])), "")
        return RedisBackend(Sender(lines, SentinelTopology([SENTINEL], "main", lines)), "")

    def observe(self) -> Backend:
        return self._observer

    def store_time(self, moment: float) -> float:
        return self.clocks[self._master_at(moment)].at(moment)

    def _master_at(self, moment: float) -> Node:
        return next(node for since, node in reversed(self._masters) if since <= moment)

    def clock_steps(self, first: float, last: float) -> list[float]:
        turns = [since for since, _ in self._masters if first <= since <= last]
        return turns + [moment for clock in self.clocks.values() for moment in clock.steps_between(first, last)]

    # --- servers -----------------------------------------------------------------------------------------------------

    def _deliver(self, node: Node, attempt: Attempt, commands: list[Command], most: int | None) -> Any:
        if node == SENTINEL:
            return [[self.master[0].encode(), b"%d" % self.master[1]] for _ in commands]
        server, op = self.servers[node], attempt.op
        if op is None:
            return server.execute(commands, most)
        name = op.target if op.kind == "fork" else op.session
        server.space.purge()
        self._expire()
        before, fence = self._facts(server, name), self._fence(server, name)
        lease = self.judge.leases.note(name) if node == self.master else None
        replies = server.execute(commands, most)
        after = self._facts(server, name)
        if self.has_leases and node == self.master:
            self.judge.served(attempt, name, Served(lease, before, after))
        if self._fence(server, name) < fence and op.kind != "erase":
            self.judge.fence_lowered(attempt, name)
        if after is None and before is not None and op.kind != "erase":
            self.tell(node[0], f"removes {name!r} for {attempt.name} of {attempt.host.name}: its time is over")
            self._expire()
        elif after != before:
            self.tell(node[0], f"applies {attempt.name} of {attempt.host.name}")
            if len(self.nodes) > 1:
                attempt.issued = self.clocks[node].at(attempt.sent)
            self.judge.applied(attempt, name)
            if self._images is not None:
                self._images.append((self.scheduler.now, server.space.image(), self.judge.image()))
        return replies

    def _expire(self) -> None:
        """Tell the judge of sessions that the master has removed: their time was over."""
        ending = [
            (name, one.expires_at) for name, one in self.judge.model.sessions.items() if one.expires_at is not None
        ]
        if not ending:
            return
        master, now = self.servers[self.master], self.store_time(self.scheduler.now)
        master.space.purge()
        for name, expires in ending:
            if self._facts(master, name) is None:
                if expires > now + MICROSECONDS:
                    self.judge.find("expired early", f"{name!r} is gone before its time")
                self.judge.vanished(name)

    def _facts(self, server: RedisServer, name: str) -> tuple[Any, Any] | None:
        meta = server.space.values.get(self._keys.keys(name)[0])
        return None if meta is None or b"life" not in meta else (meta[b"life"], meta[b"version"])

    def _fence(self, server: RedisServer, name: str) -> int:
        return int((server.space.values.get(self._keys.keys(name)[0]) or {}).get(b"fence", 0))

    def lease_row(self, name: str) -> LeaseRow | None:
        kept = (self.servers[self.master].space.values.get(self._keys.keys(name)[0]) or {}).get(b"lease")
        if kept is None:
            return None
        _, token, holder, until = kept.decode().split()
        return LeaseRow(int(token), holder, int(until) / 1e6)

    def inject(self, fault: Fault) -> None:
        now = self.scheduler.now
        match fault.kind:
            case "unreachable":
                host = self.hosts[fault.who % len(self.hosts)]
                self.tell(host.name, f"reaches nobody for {fault.seconds:.3f} s")
                self.network.unreachable[host.name] = now + fault.seconds
            case "pause":
                self.tell(self.master[0], f"is paused for {fault.seconds:.3f} s")
                self.network.until[self.master] = now + fault.seconds
            case "restart":
                self._restart(fault)
            case "failover":
                self._fail_over(fault)
            case "step":
                node = self.nodes[fault.who % len(self.nodes)]
                back = now if fault.lose < 0 else now + fault.seconds if fault.seconds else None
                if back is not None:
                    self.judge.relaxed_from = min(self.judge.relaxed_from, back)
                self.step(node[0], self.clocks[node], fault)

    def _restart(self, fault: Fault) -> None:
        node = self.master
        if node in self.network.down:
            return
        self.tell(node[0], f"is killed; it lost its latest {fault.lose:.3f} s")
        self.network.down.add(node)
        self.servers[node].forget_scripts()
        if fault.lose:
            self._load(self._image(fault.lose))
        self.scheduler.at(self.scheduler.now + fault.seconds, lambda: self._start(node))

    def _load(self, image: Any) -> None:
        master = self.servers[self.master].space
        master.load(image)
        master.is_readonly = False
        for node, server in self.servers.items():
            if node != self.master:
                server.space.follow(master)
        self.judge.leases.lost()  # only now: the judge went back before the server did

    def _start(self, node: Node) -> None:
        self.tell(node[0], "is up again")
        self.network.down.discard(node)

    def _fail_over(self, fault: Fault) -> None:
        old = self.master
        new = next(node for node in self.nodes if node != old)
        self.tell(new[0], f"takes over from {old[0]}, {fault.lose:.3f} s behind it")
        image = self._image(fault.lose) if fault.lose else self.servers[old].space.image()
        self.master = new
        self._load(image)
        self.network.down.discard(new)
        self.network.down.add(old)  # whoever is connected to it is cut off; then it is a replica
        self.scheduler.at(self.scheduler.now + fault.seconds, lambda: self.network.down.discard(old))
        self._masters.append((self.scheduler.now, new))

    def _image(self, age: float) -> Any:
        """The data as it was so long ago; the judge goes back, too."""
        images = self._images or []
        kept = [image for image in images if image[0] <= self.scheduler.now - age]
        self.judge.load(*(kept[-1][::2] if kept else (0.0, None)))
        images[:] = kept
        return kept[-1][1] if kept else ({}, {})

    def quiet(self) -> None:
        self.network.down.clear()
        self.network.until.clear()
        self.network.unreachable.clear()
        self._expire()

    def close(self) -> None: ...
