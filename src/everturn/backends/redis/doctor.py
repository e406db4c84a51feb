"""doctor: questions to Redis servers beyond those of a store that opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from everturn.backends._shared.server_warnings import Examination, Finding, together
from everturn.backends.redis import open_checks
from everturn.backends.redis.client import Sender
from everturn.backends.redis.transport.blocking_pool import where
from everturn.core.numbers import size

OLDEST = (6, 2)
HEADROOM = 0.2  # of maxmemory, that should be free


async def examine(sender: Sender, deadline: float) -> Examination:
    """Return facts of every master, and findings."""
    facts: list[tuple[str, str]] = []
    found = list(await open_checks.findings(sender, deadline))
    more: list[Finding] = []
    for _, node in await sender.topology.masters(deadline):
        about = await open_checks.about(sender, node, deadline)
        name = where(node)
        facts += ((f"{name} {what}", value) for what, value in facts_of(about))
        more += (Finding(name, *wrong) for wrong in wrong_with(about))
    return Examination(tuple(facts), (*found, *together(more)))


def facts_of(about: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the facts of INFO that one asks for first. Pure."""
    server = "Valkey" if "valkey_version" in about else "Redis"
    yield "server", f"{server} {about.get('valkey_version') or about.get('redis_version', 'unknown')}"
    most = int(about.get("maxmemory", 0))
    used = size(int(about.get("used_memory", 0)))
    yield "memory", f"{used} of {size(most)}" if most else f"{used}, no limit set"
    yield "eviction", about.get("maxmemory_policy", "unknown")
    yield "persistence", "AOF" if about.get("aof_enabled") == "1" else "snapshots at most (no AOF)"
    yield "replicas", about.get("connected_slaves", "0")
    yield "clients", about.get("connected_clients", "unknown")


def wrong_with(about: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield findings: the fault, the risk, and the fix. Pure."""
    version = about.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        yield (
            f"version {version}",
            "it lacks what our scripts call, and changes will fail",
            "upgrade to Valkey, or to Redis 6.2 or later",
        )
    most, used = int(about.get("maxmemory", 0)), int(about.get("used_memory", 0))
    if most and used > (1 - HEADROOM) * most:
        yield (
            f"{size(used)} of {size(most)} are used",
            "once it is full, changes are refused (not_written) or, with an eviction policy, sessions vanish",
            "raise maxmemory, let sessions expire (ttl), or everturn compact",
        )
    if not most and "maxmemory" in about:
        yield (
            "no maxmemory is set",
            "the system ends the server when the machine runs out of memory",
            "CONFIG SET maxmemory <bytes below the machine's>, and maxmemory-policy noeviction",
        )
    if about.get("role") == "master" and about.get("connected_slaves") == "0":
        yield (
            "it has no replica",
            "if the machine is lost, all since the last backup is",
            "add a replica, and wait_replicas=1 where no acknowledged turn may be lost",
        )
