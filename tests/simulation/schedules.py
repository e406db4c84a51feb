"""A schedule is data: the calls of each client, the faults, the way of each message. A seed makes one.

Whatever was drawn can be written down, changed and run again: that is how a schedule is shrunk, and kept.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec

Kind = Literal[
    "append", "read", "read_at", "snapshot", "rollback", "undo", "replace", "trim", "clear", "erase", "set_ttl", "fork",
    "compact", "delete_snapshot", "fold", "context", "lease", "renew", "release", "begin", "finish", "fail",
]  # fmt: skip


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of one caller. `of` is the call that took the snapshot, took the lease or began the effect it is about.

    `lease` is the call that took the lease which this one names. `key` is that of a turn, or of an effect.
    """

    id: int
    kind: Kind
    session: str
    pause: float  # seconds after the call before it
    values: tuple[str, ...] = ()
    key: str | None = None
    of: int = 0
    # Of a trim or fold; for a replace, how many of the turns that the caller knows of stay; for a begin, the attempt
    # that may be repeated.
    limit: int = 0
    seconds: float | None = None  # of a TTL or a lease; for a fold, how long its model takes
    target: str = ""
    lease: int = 0
    cancel: float | None = None  # seconds after which its task is cancelled


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The way of one exchange. `notice`: seconds until its sender sees the connection fail; None: it sees nothing.

    lost: the request. mute: the reply. held: it arrives after `hold` seconds. twice: it arrives then a second time.
    cut: of several commands only the first arrives. refused: no connection. dies: its sender does, `notice` seconds
    after it was sent; the request arrives after `hold` seconds.
    """

    kind: Literal["ok", "lost", "mute", "held", "twice", "cut", "refused", "dies"] = "ok"
    out: float = 0.001
    back: float = 0.001
    hold: float = 0.0
    notice: float | None = None


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happens to a host. `who` is a server's number; for unreachable, kill and step_client a client's.

    pause and unreachable last `seconds`. restart is down for `seconds` and has lost the latest `lose`. failover
    promotes a replica that is `lose` behind. step sets a clock by `lose` and, if `seconds` are given, back after them.
    full: the disk takes nothing more for `seconds`.
    """

    kind: Literal["pause", "restart", "failover", "step", "unreachable", "kill", "step_client", "full"]
    at: float
    who: int = 0
    seconds: float = 0.0
    lose: float = 0.0


class Client(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process: its clocks, and what each of its tasks does."""

    tasks: tuple[tuple[Op, ...], ...]
    rate: float = 1.0
    ahead: float = 0.0
    opens_late: bool = False  # at its first call, and not when the world begins


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's clock."""

    rate: float = 1.0
    ahead: float = 0.0


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One world as data. `deliveries` by exchange; None: they are drawn from the seed by `failure_rates`."""

    seed: int
    backend: str
    clients: tuple[Client, ...]
    servers: tuple[Server, ...] = (Server(),)
    faults: tuple[Fault, ...] = ()
    timeout: float = 5.0
    ttl: float | None = None
    failure_rates: dict[str, float] = {}
    deliveries: dict[str, Delivery] | None = None

    @property
    def ops(self) -> list[Op]:
        return [op for client in self.clients for task_ops in client.tasks for op in task_ops]


MENU: dict[Kind, float] = {
    "append": 8, "read": 4, "snapshot": 2, "rollback": 4, "undo": 1.5, "replace": 1.5, "trim": 3, "clear": 1,
    "erase": 2, "set_ttl": 0.7, "fork": 0.7, "compact": 0.7, "delete_snapshot": 0.3, "read_at": 0.7,
}  # fmt: skip
WORK: dict[Kind, float] = {
    "lease": 3, "renew": 1.5, "release": 1.5, "append": 4, "begin": 4, "finish": 3, "fail": 1, "context": 1.5,
    "clear": 0.5, "undo": 0.5, "erase": 0.3,
}  # fmt: skip
TROUBLES = ("lost", "mute", "held", "twice", "cut", "refused", "dies")


def make(seed: int, backend: str) -> Schedule:
    """The schedule of a seed. Each leaves out some calls and some faults: what always happens hides what is rare."""
    random = Random(f"{backend}{seed}")
    timeout = random.choice((0.5, 1.0, 1.0, 5.0))
    # Longer than a request lives: with its session everything ends that could tell of it.
    ttl = random.choice((None, None, None, 2.1 * timeout, 60.0))
    if backend == "sqlite":
        ttl = random.choice((None, 2.0, 30.0))
    failure_rates = _failure_rates(random, backend)
    with_failover = backend == "redis" and random.random() < 0.12
    if with_failover:
        ttl = None  # a session's end is told in one clock
    writer = _Writer(random, timeout, without={"set_ttl"} if with_failover else set())
    clients = tuple(writer.client(number) for number in range(random.choice((2, 2, 3, 4))))
    servers = [_server(random) for _ in range(1 + with_failover)]
    faults = _faults(random, backend, len(clients), timeout, with_failover=with_failover)
    if with_failover and random.random() < 0.5:
        failure_rates = {"twice": random.choice((0.1, 0.3)), "held": random.choice((0.0, 0.1)), "mute": 0.1}
        faults = _back_and_forth(random, faults, timeout)
    clients = _with_workers(_with_folds(clients, seed, timeout), seed, timeout)
    return Schedule(seed, backend, clients, tuple(servers), faults, timeout, ttl, failure_rates)


def _with_folds(clients: tuple[Client, ...], seed: int, timeout: float) -> tuple[Client, ...]:
    """Let most trims and some reads of every other seed be folds. All else is as it was before there were folds."""
    random = Random(f"folds {seed}")
    if random.random() < 0.5:
        return clients

    def changed(op: Op) -> Op:
        if random.random() >= {"trim": 0.8, "read": 0.2}.get(op.kind, 0.0):
            return op
        seconds = random.choice((0.0, random.uniform(0, 0.1), random.uniform(0, timeout), 2.5 * timeout))
        return msgspec.structs.replace(op, kind="fold", limit=op.limit or random.randint(1, 3), seconds=seconds)

    replace = msgspec.structs.replace
    return tuple(replace(one, tasks=tuple(tuple(map(changed, ops)) for ops in one.tasks)) for one in clients)


def _with_workers(clients: tuple[Client, ...], seed: int, timeout: float) -> tuple[Client, ...]:
    """Add processes with leases and effects to every third seed. All else is as it was before there were any."""
    random = Random(f"leases {seed}")
    if random.random() < 2 / 3:
        return clients
    workers = []
    for number in range(random.choice((1, 2, 2, 3))):
        ops = [_work(random, 1000 + 100 * number, timeout, [])]
        while len(ops) < random.randint(4, 9):
            ops.append(_work(random, ops[-1].id + 1, timeout, ops))
        workers.append(Client((tuple(ops),), 1 + random.uniform(-2e-4, 2e-4)))
    return (*clients, *workers)


def _work(random: Random, number: int, timeout: float, before: list[Op]) -> Op:
    """Make a call of a worker. It takes a lease first; then most of its calls name the latest one that it took."""
    kind = random.choices(list(WORK), list(WORK.values()))[0] if before else "lease"
    taken = [op.id for op in before if op.kind == "lease"]
    longest = random.choice((0.01, 0.1, 0.5 * timeout))
    cancel = random.uniform(0.0005, timeout / 2) if random.random() < 0.04 else None
    op = Op(number, kind, "a", random.uniform(0, longest), cancel=cancel)
    replace = msgspec.structs.replace
    if kind in ("append", "begin", "finish", "fail", "clear", "undo") and random.random() < 0.7:
        op = replace(op, lease=random.choice((taken[-1], taken[-1], random.choice(taken))))
    match kind:
        case "lease":
            return replace(op, seconds=random.choice((0.05, 0.3 * timeout, 2.0 * timeout, 600.0)))
        case "renew" | "release":
            return replace(op, of=taken[-1])
        case "append":
            return replace(op, values=(f"{number}.0",))
        case "begin":
            return replace(op, key=random.choice(("pay", "mail")), limit=random.choice((0, 0, 0, 1)))
        case "finish" | "fail":
            begun = [one for one in before if one.kind == "begin"]
            if not begun:
                return replace(op, kind="begin", key="pay")
            one = random.choice(begun)
            return replace(op, key=one.key, of=random.choice((0, one.id)))
    return op


def _failure_rates(random: Random, backend: str) -> dict[str, float]:
    if backend == "sqlite":
        return {"dies": random.choice((0.0, 0.0, 0.03))}
    kinds = [kind for kind in TROUBLES if random.random() < 0.5] or ["held"]
    trouble = random.choice((0.03, 0.1, 0.25, 0.4))
    return {kind: trouble / len(kinds) for kind in kinds}


def _server(random: Random) -> Server:
    return Server(
        1 + random.uniform(-2e-4, 2e-4), random.choice((0.0, random.uniform(-3, 3), random.uniform(-1e4, 1e4)))
    )


def _faults(random: Random, backend: str, clients: int, timeout: float, *, with_failover: bool) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    servers_have = {"redis": ("pause", "restart", "step", "unreachable"), "postgres": ("pause", "step", "unreachable")}
    kinds = ["kill", "step_client", *servers_have.get(backend, ("full",))]
    if with_failover:
        kinds.append("failover")
    for kind in kinds:
        often = (
            0.6
            if kind == "failover"
            else 0.25
            if kind in ("unreachable", "kill") or (backend == "sqlite" and kind == "step_client")
            else 0.1
        )
        while random.random() < often:
            at = random.uniform(0.05, 4 * timeout)
            seconds, lose, who = random.uniform(0.1, 1.5 * timeout), 0.0, random.randrange(clients)
            if kind in ("restart", "failover"):
                seconds, lose = random.uniform(0.01, timeout), random.choice((0.0, 0.0, random.uniform(0.0, 1.0)))
            if kind in ("step", "step_client"):
                lose = random.choice((-1, 1)) * random.choice((0.5, 5.0, 3600.0))
                seconds = seconds if backend == "sqlite" else random.choice((0.0, seconds))
            faults.append(Fault(kind, at, who if kind in ("unreachable", "kill", "step_client") else 0, seconds, lose))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _back_and_forth(random: Random, faults: tuple[Fault, ...], timeout: float) -> tuple[Fault, ...]:
    """Let two servers take over from each other while requests are under way: each judges them by its own clock."""
    left = [fault for fault in faults if fault.kind not in ("failover", "step")]
    at = 0.0
    for _ in range(random.randint(2, 6)):
        at += random.choice((random.uniform(0.05, 0.3), random.uniform(0.05, 2 * timeout)))
        seconds = random.choice((0.0, random.uniform(0.0, 0.3)))
        left.append(Fault("failover", at, 0, seconds, random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 0.5)))))
    return tuple(sorted(left, key=lambda fault: fault.at))


class _Writer:
    """Writes what the callers do."""

    def __init__(self, random: Random, timeout: float, without: set[str]) -> None:
        self._random = random
        self._timeout = timeout
        self._count = 0
        names: list[Kind] = [kind for kind in MENU if random.random() < 0.6]
        self._menu: list[Kind] = sorted({*names, "append", "read"} - without)
        self._weights = [MENU[kind] for kind in self._menu]
        self._sessions = ["a"] if random.random() < 0.75 else ["a", "b"]
        self._keyed: list[Op] = []
        self._keys = random.choice((0.0, 0.4, 0.8))
        self._snapshots: list[Op] = []

    def client(self, number: int) -> Client:
        random = self._random
        tasks = []
        for _ in range(1 if random.random() < 0.8 else 2):
            ops = [self._op() for _ in range(random.randint(2, 6))]
            if number == 0 and not tasks:  # so that there is something to change, and to return to
                ops[:0] = [self._made("append", "a", 0.0), self._made("snapshot", "a", 0.0)]
            tasks.append(tuple(ops))
        ahead = random.choice((0.0, random.uniform(-2, 2)))
        opens_late = random.random() < 0.2
        return Client(tuple(tasks), 1 + random.uniform(-2e-4, 2e-4), ahead, opens_late)

    def _op(self) -> Op:
        random = self._random
        pause = random.choice(
            (random.uniform(0, 0.01), random.uniform(0, 0.3), random.uniform(0, self._timeout), 1.2 * self._timeout)
        )
        if self._keyed and random.random() < self._keys / 2:  # a caller's own retry, from whatever process
            return msgspec.structs.replace(random.choice(self._keyed), id=self._number(), pause=pause, cancel=None)
        (kind,) = random.choices(self._menu, self._weights)
        return self._made(kind, random.choice(self._sessions), pause)

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _made(self, kind: Kind, session: str, pause: float) -> Op:
        random = self._random
        if kind in ("rollback", "delete_snapshot", "read_at"):
            taken = [op for op in self._snapshots if op.session == session]
            if not taken:
                kind = "snapshot"
        number = self._number()
        cancel = random.uniform(0.0005, self._timeout / 2) if random.random() < 0.04 else None
        op = Op(number, kind, session, pause, cancel=cancel)
        replace = msgspec.structs.replace
        match kind:
            case "append" | "replace":
                op = replace(op, values=tuple(f"{number}.{i}" for i in range(random.choice((1, 1, 2)))))
                if kind == "replace":
                    return replace(op, limit=random.randrange(3))
                if random.random() < self._keys:
                    op = replace(op, key=f"key-{number}")
                    self._keyed.append(op)
            case "snapshot":
                self._snapshots.append(op)
            case "rollback" | "delete_snapshot" | "read_at":
                op = replace(op, of=random.choice(taken).id)
            case "trim":
                op = replace(op, limit=random.randint(1, 4))
            case "set_ttl":
                op = replace(op, seconds=random.choice((None, 2.1 * self._timeout, 100.0)))
            case "fork":
                op = replace(op, target=f"{session}-fork-{random.randrange(2)}")
        return op
