"""Settings of a server that break what a store promises, each with its fix, for warnings and for `doctor`.

It asks and judges; it changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.backends.postgres.ports import Call, Port
from everturn.errors import Unsupported

OLDEST = 140000

_SETTINGS = Call(
    "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
    "current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit'), "
    "current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('transaction_read_only')"
)


class HostileSetting(UserWarning):
    """A setting of the server under which acknowledged changes may be lost."""


class Finding(msgspec.Struct, frozen=True):
    """One setting that breaks a promise: what it is, what may happen, and what to do."""

    setting: str
    value: str
    risk: str
    fix: str

    def __str__(self) -> str:
        return f"PostgreSQL runs with {self.setting}={self.value}: {self.risk}. {self.fix}"


async def findings(port: Port, deadline: float) -> list[Finding]:
    """What is wrong with the server's settings. Raises Unsupported if it cannot serve at all."""
    ((number, version, encoding, *settings),) = await port.run(_SETTINGS, deadline)
    if number < OLDEST:
        raise Unsupported(f"{port.name} is PostgreSQL {version}; everturn needs 14 or later")
    if encoding != "UTF8":
        raise Unsupported(
            f"{port.name}: the database's encoding is {encoding}, which cannot hold every text; "
            "create one with ENCODING 'UTF8'"
        )
    return judge(settings)


def judge(settings: Sequence[Any]) -> list[Finding]:
    """Pure: fsync, synchronous_commit, full_page_writes, whether in recovery, and transaction_read_only."""
    fsync, synchronous_commit, full_page_writes, in_recovery, read_only = settings
    found: list[Finding] = []
    if fsync == "off":
        risk = "a power cut or crash of the machine loses acknowledged changes, or the whole database"
        found.append(Finding("fsync", "off", risk, "Set fsync = on and reload"))
    if synchronous_commit == "off":
        risk = "a crash of the server loses acknowledged changes of the last moments"
        fix = "Set synchronous_commit = on (ALTER ROLE ... SET will do)"
        found.append(Finding("synchronous_commit", "off", risk, fix))
    if full_page_writes == "off":
        risk = "a power cut may leave torn pages that cannot be repaired"
        found.append(Finding("full_page_writes", "off", risk, "Set full_page_writes = on and reload"))
    if in_recovery or read_only == "on":
        risk = "every change will be refused, and reads may be behind"
        fix = "Address the primary (target_session_attrs=read-write finds it among several hosts)"
        found.append(Finding("transaction_read_only", "on", risk, fix))
    return found


def warn(found: Sequence[Finding]) -> None:
    """Say it out loud. Python shows a warning once, unless told otherwise."""
    for finding in found:
        warnings.warn(str(finding), HostileSetting, stacklevel=2)
