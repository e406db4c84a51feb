"""Checks of a store that opens: settings of Redis servers that may lose turns. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from everturn.backends._shared.server_warnings import Finding, together
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import Refusal
from everturn.backends.redis.transport.blocking_pool import where
from everturn.backends.redis.transport.resp import Command
from everturn.backends.redis.url import Node
from everturn.errors import MemoryStoreBackendError
from everturn.model.health import Health

STALE = 10  # seconds since a replica was last heard of
SETTINGS = ("save", "appendfsync", "min-replicas-to-write")
QUESTIONS: Sequence[Command] = (("INFO",), *(("CONFIG", "GET", name) for name in SETTINGS))


class ServerAnswers(msgspec.Struct, frozen=True):
    """The answers of a server: INFO, and settings; None where we may not read them."""

    about: Mapping[str, str]
    save: str | None = None
    appendfsync: str | None = None
    min_replicas: str | None = None

    @property
    def replicas(self) -> list[dict[str, str]]:
        """The lines of INFO on each replica: `slave0:ip=...,port=...,state=online,offset=...,lag=0`."""
        lines = (value for name, value in self.about.items() if name[:5] == "slave" and name[5:].isdigit())
        return [dict(part.split("=", 1) for part in line.split(",") if "=" in part) for line in lines]


async def findings(sender: Sender, deadline: float) -> list[Finding]:
    """Return findings on all masters. Raises MemoryStoreBackendError if no master answers. One that is down while its
    replica takes over is no reason not to open."""
    found: list[Finding] = []
    silent: MemoryStoreBackendError | None = None
    masters = [node for _, node in await sender.topology.masters(deadline)]
    answered = 0
    for node in masters:
        try:
            answers = await answers_of(sender, node, _share(deadline, len(masters)))
        except MemoryStoreBackendError as exc:
            silent = exc
            continue
        answered += 1
        found += (Finding(where(node), *wrong) for wrong in wrong_with(answers, sender.replicas))
    if silent is not None and not answered:
        raise silent
    return together(found)


def _share(deadline: float, count: int) -> float:
    """Return the deadline for one of several masters: one that hangs must not take all the time."""
    now = time.monotonic()
    return deadline if count == 1 else now + (deadline - now) / 2


async def answers_of(sender: Sender, node: Node, deadline: float) -> ServerAnswers:
    """Ask one server for INFO and settings."""
    about, *settings = await sender.transport.exchange(node, QUESTIONS, deadline)
    return ServerAnswers({} if isinstance(about, Refusal) else _lines(about), *map(_value, settings))


async def about(sender: Sender, node: Node, deadline: float) -> Mapping[str, str]:
    """Return INFO of one server; empty if we may not read it."""
    return (await answers_of(sender, node, deadline)).about


def _lines(about: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in about.decode(errors="replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def _value(reply: Any) -> str | None:
    if isinstance(reply, dict):  # a client that was given to us may use RESP 3
        reply = [part for pair in reply.items() for part in pair]
    return reply[1].decode(errors="replace") if isinstance(reply, list) and len(reply) == 2 else None


def wrong_with(server: ServerAnswers, wait_replicas: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yield findings: the fault, the risk, and the fix. A setting that is not known is no finding. Pure."""
    about = server.about
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and about.get("maxmemory", "0") != "0":
        yield (
            f"maxmemory-policy {policy}",
            "when memory is full it evicts keys, and parts of sessions vanish",
            "CONFIG SET maxmemory-policy noeviction; let sessions expire by ttl",
        )
    yield from _on_disk(server)
    if about.get("role") == "slave":
        yield (
            "a read-only replica",
            "every change will be refused, and reads may be behind",
            "connect to its master, or use redis+sentinel:// or redis+cluster://",
        )
        if about.get("master_link_status") == "down":
            yield (
                "it has lost its master",
                "what it shows gets older and older",
                "mend the link (INFO replication), or connect elsewhere",
            )
    else:
        yield from _replicated(server, wait_replicas)


def _on_disk(server: ServerAnswers) -> Iterator[tuple[str, str, str]]:
    about = server.about
    if about.get("aof_enabled") == "0" and server.save == "":
        yield (
            "nothing is kept on disk (appendonly no, save '')",
            "a restart loses every session",
            "CONFIG SET appendonly yes, and in its configuration file",
        )
    elif about.get("aof_enabled") == "0":
        yield (
            "it writes to disk only now and then (appendonly no)",
            "a crash loses the latest minutes",
            "CONFIG SET appendonly yes, and appendfsync always where no acknowledged turn may be lost",
        )
    elif server.appendfsync == "no":
        yield (
            "appendfsync no",
            "a power cut loses what the system had not got round to writing, half a minute or more",
            "CONFIG SET appendfsync everysec, or always where no acknowledged turn may be lost",
        )
    if "err" in (about.get("aof_last_write_status"), about.get("rdb_last_bgsave_status")):
        yield (
            "its latest write to disk failed",
            "it may refuse every change, and a restart loses what is not on disk",
            "make room on its disk, and look into its log",
        )


def _replicated(server: ServerAnswers, wait_replicas: int) -> Iterator[tuple[str, str, str]]:
    replicas = server.replicas
    stale = [one for one in replicas if one.get("state") != "online" or int(one.get("lag", 0)) > STALE]
    if stale:
        names = ", ".join(f"{one.get('ip')}:{one.get('port')}" for one in stale)
        yield (
            f"stale replicas ({names})",
            "a failover to one of them loses what it has not got",
            "mend them or their link (INFO replication); wait_replicas makes a change wait for replicas",
        )
    if len(replicas) - len(stale) < wait_replicas and server.about:
        yield (
            f"{len(replicas) - len(stale)} replicas follow it, but wait_replicas={wait_replicas}",
            "every change ends as unknown",
            "add replicas, or lower wait_replicas",
        )
    demanded = int(server.min_replicas or 0)
    if demanded > int(server.about.get("min_slaves_good_slaves", demanded)):
        yield (
            f"min-replicas-to-write {demanded} is not met",
            "every change is refused",
            "add replicas, or lower min-replicas-to-write",
        )


async def health(sender: Sender, deadline: float) -> Health:
    """Ask every master whether it takes writes. Raises MemoryStoreBackendError if one does not answer."""
    problems: list[str] = []
    replicas, masters = 0, [node for _, node in await sender.topology.masters(deadline)]
    writable = True
    for node in masters:
        told = await about(sender, node, _share(deadline, len(masters)))
        refusals = list(_refuses_writes(told))
        writable = writable and not refusals
        problems += (f"{where(node)}: {why}" for why in refusals)
        replicas += int(told.get("connected_slaves", 0))
    if replicas < sender.replicas:
        writable = False
        problems.append(f"{replicas} replicas are connected, and wait_replicas={sender.replicas}")
    return Health(reachable=True, writable=writable, seconds=0.0, problems=tuple(problems), replicas=replicas)


def _refuses_writes(told: Mapping[str, str]) -> Iterator[str]:
    if told.get("role", "master") != "master":
        yield "it is a replica, which takes no writes"
    if told.get("loading", "0") != "0":
        yield "it is loading its data"
    limit, used = int(told.get("maxmemory", 0)), int(told.get("used_memory", 0))
    if limit and used >= limit and told.get("maxmemory_policy") == "noeviction":
        yield f"its memory is full ({used:,} of {limit:,} bytes)"
    for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"):
        if told.get(name, "ok") != "ok":
            yield f"{name} is {told[name]}: look at its disk"
