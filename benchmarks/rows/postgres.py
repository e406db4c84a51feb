"""PostgreSQL: the rows every server has, prompts, and what a session costs on its disk."""

from collections.abc import Iterator

import psycopg

import everturn
from benchmarks.backends import POSTGRES, Running
from benchmarks.plan import RunPlan, TableRow
from benchmarks.rows import context, servers
from benchmarks.stats import spread
from everturn.bench.contenders.everturn_store import as_messages
from everturn.bench.workload import json_bytes
from everturn.bench.workload import turns as make_turns

SESSIONS, MESSAGES = 500, 20
SIZE = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'everturn' AND c.relkind = 'r'
"""


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline of the size: the JSON of the messages. Tables and indexes, after a checkpoint; no VACUUM FULL."""
    with POSTGRES.run() as server:
        yield from _disk(server)
        yield from servers.measure(plan, POSTGRES, server)
        yield from context.on_server(plan, server.url, "PostgreSQL")


def _disk(server: Running) -> Iterator[TableRow]:
    written = make_turns(MESSAGES // 2)
    with psycopg.connect(server.url, autocommit=True) as beside, everturn.open(server.url) as store:
        beside.execute("ALTER SYSTEM SET synchronous_commit = off")  # quicker, and the same rows
        beside.execute("SELECT pg_reload_conf()")
        before, wal = _bytes(beside), _wal(beside)
        for turn in written:
            for number in range(SESSIONS):
                store.add_messages(f"disk-{number}", as_messages(turn))
        logged = (_wal(beside) - wal) / (SESSIONS * len(written))
        beside.execute("ALTER SYSTEM RESET synchronous_commit")
        beside.execute("SELECT pg_reload_conf()")
        beside.execute("CHECKPOINT")
        ours = (_bytes(beside) - before) / SESSIONS
    stored = json_bytes([message for turn in written for message in turn])
    yield TableRow(
        f"PostgreSQL: disk of a session of {MESSAGES} messages, with its indexes",
        f"{ours / 1e3:,.1f} kB",
        f"{stored / 1e3:,.1f} kB JSON",
        spread([ours / stored]),
        note=f"{logged / 1e3:,.1f} kB of WAL a turn",
    )


def _bytes(connection: "psycopg.Connection[tuple[int]]") -> int:
    [(size,)] = connection.execute(SIZE).fetchall()
    return int(size)


def _wal(connection: "psycopg.Connection[tuple[int]]") -> int:
    [(position,)] = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
    return int(position)
