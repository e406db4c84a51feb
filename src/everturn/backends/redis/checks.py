"""Looks for settings of a server under which acknowledged turns can be lost, and says how to mend them.

Used when a store opens, and by `doctor`. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everturn.backends.redis.faults import Refusal
from everturn.backends.redis.lines import Command, where
from everturn.backends.redis.sending import Sender

QUESTIONS: Sequence[Command] = (("INFO",), ("CONFIG", "GET", "save"), ("CONFIG", "GET", "appendfsync"))


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong with a server, and what to do about it."""

    what: str
    fix: str


async def check(sender: Sender, deadline: float) -> list[Finding]:
    """What is wrong with each master. Raises MemoryStoreBackendError if one cannot be asked."""
    found: list[Finding] = []
    for node, (about, *settings) in await sender.on_every_master(lambda _: QUESTIONS, deadline):
        if not isinstance(about, Refusal):
            place = where(node)
            found += (Finding(f"{place} {what}", fix) for what, fix in wrong_with(_lines(about), *map(_pair, settings)))
    return found


def wrong_with(about: Mapping[str, str], save: str | None, fsync: str | None) -> list[tuple[str, str]]:
    """What is wrong by INFO and two settings (None where they may not be read), each with its fix."""
    found = []
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and about.get("maxmemory", "0") != "0":
        found.append(
            (
                f"may evict keys when memory is full (maxmemory-policy {policy}): parts of sessions vanish",
                "set maxmemory-policy noeviction; let sessions expire by ttl",
            )
        )
    if about.get("aof_enabled") == "0" and save == "":
        found.append(("keeps nothing on disk: a restart loses every session", "set appendonly yes"))
    elif about.get("aof_enabled") == "0":
        found.append(
            (
                "writes to disk only now and then (RDB): a crash loses the latest minutes",
                "set appendonly yes, and appendfsync always where no acknowledged turn may be lost",
            )
        )
    elif fsync == "no":
        found.append(("leaves syncing to the system (appendfsync no)", "set appendfsync everysec or always"))
    if about.get("role") == "slave":
        found.append(("is a read-only replica", "connect to its master, or use redis+sentinel:// or redis+cluster://"))
        if about.get("master_link_status") == "down":
            found.append(("has lost its master and may serve stale data", "mend the link, or connect elsewhere"))
    return found


def _lines(about: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in about.decode(errors="replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def _pair(reply: Any) -> str | None:
    return reply[1].decode(errors="replace") if isinstance(reply, list) and len(reply) == 2 else None
