"""Examines a PostgreSQL server for `doctor`, beyond the checks of open_checks.py. It asks; it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from everturn.backends._shared.server_warnings import Examination, Finding
from everturn.backends.postgres import open_checks
from everturn.backends.postgres.executor import Executor, SqlCall
from everturn.core.numbers import size

CROWDED = 0.8  # of max_connections
BLOATED = 0.5  # of the rows of a table, dead
FEW_ROWS = 10_000

# Every name is qualified, as in open_checks.py.
_OTHERS = "FROM pg_catalog.pg_stat_activity WHERE backend_type OPERATOR(pg_catalog.=) 'client backend'"
_QUESTION = (
    "SELECT pg_catalog.current_setting('server_version'), "  # noqa: S608 - put together from constants
    "pg_catalog.current_setting('max_connections')::pg_catalog.int4, "
    f"(SELECT pg_catalog.count(*) {_OTHERS})::pg_catalog.int4, "
    "pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('fsync'), "
    "EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'vector'), "
    "EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name OPERATOR(pg_catalog.=) 'vector'), "
    "pg_catalog.pg_database_size(pg_catalog.current_database()), "
    "(SELECT coalesce(pg_catalog.max(pg_catalog.date_part('epoch', "
    f"pg_catalog.now() OPERATOR(pg_catalog.-) xact_start)), 0.0) {_OTHERS} "
    "AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid())::pg_catalog.float8"
)
_TABLES = (
    "SELECT relname, n_live_tup, n_dead_tup, last_autovacuum IS NOT NULL OR last_vacuum IS NOT NULL "
    "FROM pg_catalog.pg_stat_user_tables WHERE schemaname OPERATOR(pg_catalog.=) %s ORDER BY relname"
)


class TableRows(msgspec.Struct, frozen=True):
    """The number of rows of a table, live and dead."""

    name: str
    live: int
    dead: int
    vacuumed: bool


class PostgresFacts(msgspec.Struct, frozen=True):
    """The answers of the server, in the order of the question."""

    version: str
    most_connections: int
    connections: int
    synchronous_commit: str
    fsync: str
    has_vector: bool
    could_have_vector: bool
    bytes: int
    longest: float  # seconds of the oldest transaction


async def examine(executor: Executor, schema_name: str, deadline: float) -> Examination:
    """Collect facts of the server and of our tables, and the findings about them."""
    found = await open_checks.findings(executor, deadline)
    (row,) = await executor.run(SqlCall(_QUESTION), deadline)
    answers = PostgresFacts(*row)
    rows: list[Any] = list(await executor.run(SqlCall(_TABLES, (schema_name,)), deadline))
    tables = [TableRows(*one) for one in rows]
    vector = "installed" if answers.has_vector else "available" if answers.could_have_vector else "missing"
    facts = (
        ("server", f"PostgreSQL {answers.version} at {executor.name}"),
        ("durability", f"fsync={answers.fsync}, synchronous_commit={answers.synchronous_commit}"),
        ("connections", f"{answers.connections} of {answers.most_connections}"),
        ("database", size(answers.bytes)),
        ("dead rows", ", ".join(f"{one.name} {one.dead:,}" for one in tables if one.dead) or "none"),
        ("pgvector", f"{vector}; search_summaries does not need it: it is exact, in the process"),
    )
    return Examination(facts, (*found, *(Finding(executor.name, *wrong) for wrong in wrong_with(answers, tables))))


def wrong_with(server: PostgresFacts, tables: list[TableRows]) -> Iterator[tuple[str, str, str]]:
    """Judge the facts. Yields each problem with its risk and its fix. Pure."""
    if server.connections > CROWDED * server.most_connections:
        yield (
            f"{server.connections} of {server.most_connections} connections are taken",
            "the next workers will not get one, and their calls fail (not_written)",
            "put PgBouncer in front (transaction mode works), or lower max_connections in the URL of each worker",
        )
    if server.longest > 600:
        yield (
            f"a transaction has been open for {server.longest:.0f} s",
            "dead rows cannot be removed while it lasts, and everything gets slower",
            "SELECT pid, query FROM pg_stat_activity ORDER BY xact_start; then end it",
        )
    for table in tables:
        if table.dead > FEW_ROWS and table.dead > BLOATED * (table.live + table.dead):
            yield (
                f"{table.dead:,} of {table.live + table.dead:,} rows of {table.name} are dead",
                "reads and writes get slower, and erased text stays on disk",
                f"VACUUM {table.name}; and see that autovacuum is on",
            )
