"""Looks for settings of a PostgreSQL server that break the promises of a store. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from everturn.backends._shared.server_warnings import Finding
from everturn.backends.postgres.executor import Executor, SqlCall
from everturn.core.leases import held_longest
from everturn.errors import MemoryStoreError, Unsupported
from everturn.model.health import Health

OLDEST = 140000
STALE = 10  # seconds behind
MOST_ROWS = 200_000  # of leases, and of effects, that health looks at: 0.1 s on an idle server

# What pg_stat_get_wal_senders shows of others is NULL to a role that may not see it, and NULL is no finding. (The views
# over these functions show more, and take a third of the time that opening a store takes.)
# Every name is qualified, operators too: these run under whatever search_path the connection has, and a role that may
# create in `public` must not have its own called (docs/operations.md).
_QUESTIONS = (
    "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, "
    "pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_encoding'), "
    "pg_catalog.current_setting('fsync'), pg_catalog.current_setting('synchronous_commit'), "
    "pg_catalog.current_setting('full_page_writes'), pg_catalog.pg_is_in_recovery(), "
    "pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'on', "
    "(SELECT pid IS NOT NULL FROM pg_catalog.pg_stat_get_wal_receiver()), "
    "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_wal_senders() "
    "WHERE state OPERATOR(pg_catalog.<>) 'streaming' "
    "OR replay_lag OPERATOR(pg_catalog.>) pg_catalog.make_interval(secs => %s)), "
    "pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '' "
    "AND pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') "
    "AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_get_wal_senders() "
    "WHERE sync_state OPERATOR(pg_catalog.=) 'sync' OR sync_state OPERATOR(pg_catalog.=) 'quorum')"
)


class PostgresSettings(msgspec.Struct, frozen=True):
    """The answers of the server, in the order of the question."""

    fsync: str = "on"
    synchronous_commit: str = "on"
    full_page_writes: str = "on"
    in_recovery: bool = False
    read_only: bool = False
    has_primary: bool = True  # of a standby: it receives WAL
    stale_standbys: int = 0
    lacks_synchronous: bool = False  # commits wait for a standby that is not there


async def findings(executor: Executor, deadline: float) -> list[Finding]:
    """Find settings that break promises. Raises Unsupported if the server cannot serve at all."""
    ((number, version, encoding, *answers),) = await executor.run(SqlCall(_QUESTIONS, (STALE,)), deadline)
    if number < OLDEST:
        raise Unsupported(f"{executor.name} is PostgreSQL {version}; everturn needs 14 or later")
    if encoding != "UTF8":
        raise Unsupported(
            f"{executor.name}: the database's encoding is {encoding}, which cannot hold every text; "
            "create one with ENCODING 'UTF8'"
        )
    return [Finding(executor.name, *found) for found in wrong_with(PostgresSettings(*answers))]


def wrong_with(server: PostgresSettings) -> Iterator[tuple[str, str, str]]:
    """Judge the settings. Yields each problem with its risk and its fix. Pure."""
    if server.fsync == "off":
        yield (
            "fsync=off",
            "a power cut or crash of the machine loses acknowledged changes, or the whole database",
            "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()",
        )
    if server.synchronous_commit == "off":
        yield (
            "synchronous_commit=off",
            "a crash of the server loses acknowledged changes of the last moments",
            "ALTER ROLE ... SET synchronous_commit = on, or ALTER SYSTEM",
        )
    if server.full_page_writes == "off":
        yield (
            "full_page_writes=off",
            "a power cut may leave torn pages that cannot be repaired",
            "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()",
        )
    if server.in_recovery or server.read_only:
        yield (
            "a standby" if server.in_recovery else "default_transaction_read_only=on",
            "every change will be refused" + (", and reads may be behind" if server.in_recovery else ""),
            "address the primary (target_session_attrs=read-write finds it among several hosts)",
        )
    if server.in_recovery and not server.has_primary:
        yield (
            "it has lost its primary",
            "what it shows gets older and older",
            "mend primary_conninfo or the network, or address another server",
        )
    if server.stale_standbys:
        yield (
            f"{server.stale_standbys} of its standbys are not streaming, or more than {STALE} s behind",
            "a failover to one of them loses what it has not got",
            "look at pg_stat_replication; synchronous_standby_names makes commits wait for standbys",
        )
    if server.lacks_synchronous:
        yield (
            "synchronous_standby_names is set, and no such standby is connected",
            "every change waits for it until its time-out, and ends as unknown",
            "bring the standby back, or ALTER SYSTEM SET synchronous_standby_names = '...'",
        )


HEALTH = (
    "SELECT pg_catalog.pg_is_in_recovery(), "
    "pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'on', "
    "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication)"
)


async def health(executor: Executor, work: SqlCall, deadline: float) -> Health:
    """Ask the server whether it takes writes, and for the work that is under way (`open_work` of calls.sql).

    Raises MemoryStoreBackendError if it does not answer. If it cannot tell the work, that is a problem of the report:
    sessions can be read and written all the same.
    """
    ((in_recovery, read_only, replicas),) = await executor.run(SqlCall(HEALTH), deadline)
    why = "it is a standby, which takes no writes" if in_recovery else "it is read-only" if read_only else None
    problems = () if why is None else (f"{executor.name}: {why}",)
    found = Health(reachable=True, writable=why is None, seconds=0.0, problems=problems, replicas=int(replicas))
    try:
        ((holders, in_doubt),) = await executor.run(work, deadline)
    except MemoryStoreError as exc:
        return msgspec.structs.replace(found, problems=(*found.problems, str(exc)))
    oldest = held_longest(holders or (), time.time())
    return msgspec.structs.replace(found, oldest_lease=oldest, effects_in_doubt=in_doubt)
