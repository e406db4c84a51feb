"""PostgreSQL 14 or later: the entry point of the schemes `postgresql` and `postgres`.

backend.py            the operations of the protocol, each one call of a function in the database
async_backend.py      the operations in an event loop
batching.py           changes of an event loop that wait together, in one statement
change_wire.py        changes as parameters of functions, rows as outcomes
arrays.py             arrays as parameters
reads.py              rows of a read as entries, session and state
listing.py            pages of sessions: the statement, its parameters, its rows
compaction.py         the steps of compact
fork_session.py       the steps of a long fork
transfer.py           sessions in and out, for copies between backends
verify.py             rows of a session, for the shared checks
executor.py           one statement out, its rows back: blocking or awaited
connections.py        pools of connections that we open
timed_connections.py  connections that keep to a deadline, and limits that the server keeps to
cancellation.py       the end of connections whose caller has gone
errors.py             PostgreSQL's errors as ours
open_checks.py        settings of the server that break promises
doctor.py             facts and findings for `everturn doctor`
schema.py             the version of the schema: created, migrated or refused
statements.py         the .sql files: calls.sql and schema.sql hold the statements we send
schema/               the stored form by version, and the functions as they are now

URLs, options and clients that we are given are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from everturn.backends._shared.options import namespace, switch, whole_number
from everturn.core.masking import ESCAPES
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.postgres.async_backend import AsyncPostgresBackend
    from everturn.backends.postgres.backend import PostgresBackend

POOL_SIZE = 10


def _schema(value: object) -> str:
    from everturn.backends.postgres.statements import checked_schema

    return checked_schema(value)


_OF_LIBPQ = (
    *("host", "port", "user", "password", "dbname", "passfile", "service", "application_name", "options"),
    "connect_timeout",
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "channel_binding", "require_auth"),
    *("target_session_attrs", "load_balance_hosts", "gssencmode", "krbsrvname"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
)

OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "namespace": namespace,
    "schema": _schema,
    "pool_size": whole_number("pool_size", 1),
    "warnings": switch("warnings"),
    "read_only": switch("read_only"),
    **dict.fromkeys(_OF_LIBPQ, str),
}


def load_driver() -> None:
    """Import psycopg, and the modules that need it."""
    from everturn.backends.postgres import async_backend, connections, executor  # noqa: F401 - imported is all it takes


def open(url: str, options: Mapping[str, Any], deadline: float) -> PostgresBackend:  # noqa: A001 - the protocol's name
    """Connect to the database that a URL names, and create or migrate everturn's schema in it.

    Warns of settings under which turns can be lost, unless told `warnings=off`. Raises InvalidInput, Unsupported,
    SchemaTooNew, MemoryStoreBackendError.
    """
    from everturn.backend import drive
    from everturn.backends.postgres.backend import PostgresBackend
    from everturn.backends.postgres.connections import TimedPool
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import BlockingExecutor

    conninfo, name = _conninfo(url, options)
    pool = TimedPool(conninfo, options.get("pool_size", POOL_SIZE), name)
    try:
        with translated(name):
            backend = PostgresBackend(BlockingExecutor(pool, name), **_names(options))
            drive(backend.prepare(deadline))
    except BaseException:
        pool.close()
        raise
    return backend


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> AsyncPostgresBackend:
    """Connect in the running event loop; otherwise like `open`."""
    from everturn.backends.postgres.async_backend import AsyncPostgresBackend
    from everturn.backends.postgres.connections import AsyncTimedPool
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import AsyncExecutor

    conninfo, name = _conninfo(url, options)
    pool = AsyncTimedPool(conninfo, options.get("pool_size", POOL_SIZE), name)
    try:
        with translated(name):
            backend = AsyncPostgresBackend(AsyncExecutor(pool, name), **_names(options))
            await backend.prepare(deadline)
    except BaseException:
        await pool.close()
        raise
    return backend


def _names(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema_name": options.get("schema", "everturn"),
        "namespace": options.get("namespace", ""),
        "warnings": options.get("warnings", True),
        "read_only": options.get("read_only", False),
    }


def _conninfo(url: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Give the conninfo that libpq connects to, and the name of the server in errors: without its password."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    place, _, path = url.partition("://")[2].partition("/")
    if place.count("@") > 1 or "@" in path:  # else libpq takes a part of the password for a host or a database
        raise InvalidInput(f"has an @ too many; {ESCAPES}", path="url")
    own = {name: value for name, value in options.items() if name in _OF_LIBPQ}
    defaults = {"client_encoding": "utf8", "application_name": "everturn"}
    try:
        conninfo = make_conninfo(url, **defaults | own)
        if "," in str(conninfo_to_dict(conninfo).get("host", "")):
            # Of several hosts, one that is silent must not use up the time of the others.
            conninfo = make_conninfo(conninfo, **{"connect_timeout": "2"} | own)
    except psycopg.Error:
        conninfo = ""
    if not conninfo:  # out here, and without libpq's words: these quote the part of the password that it stumbled over
        raise InvalidInput(f"is not an address that libpq understands; {ESCAPES}", path="url")
    parts = conninfo_to_dict(conninfo)
    where = ":".join(str(parts[part]) for part in ("host", "port") if parts.get(part))
    return conninfo, f"postgresql://{where}/{parts.get('dbname') or parts.get('user') or ''}"


# --- clients that are given to us ------------------------------------------------------------------------------------


def adopts(client: object) -> Literal["blocking", "async"] | None:
    """Whether this is a pool or connection of psycopg, and of which kind. Imports nothing."""
    kinds = [kind for kind in type(client).__mro__ if kind.__module__.partition(".")[0] in ("psycopg", "psycopg_pool")]
    if not any("Connection" in kind.__name__ for kind in kinds):
        return None
    return "async" if any(kind.__name__.startswith("Async") for kind in kinds) else "blocking"


def adopt(client: Any, options: Mapping[str, Any], deadline: float) -> PostgresBackend:
    """Make a backend over a client that stays the caller's: it keeps its own time, and stays open after the store.

    Raises InvalidInput for a connection that is not idle and in autocommit mode. An asynchronous one is asked nothing
    before the first call of the store.
    """
    from everturn.backend import drive
    from everturn.backends.postgres.async_backend import AsyncPostgresBackend
    from everturn.backends.postgres.backend import PostgresBackend
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import (
        AsyncExecutor,
        AsyncGivenClient,
        BlockingExecutor,
        GivenClient,
        checked_connection,
    )

    for name in options:
        if name == "pool_size" or name in _OF_LIBPQ:
            raise InvalidInput("belongs to the client you gave; set it there", path=name)
    if not hasattr(client, "getconn"):
        checked_connection(client)
    name = "PostgreSQL"
    with translated(name):
        if adopts(client) == "async":
            return AsyncPostgresBackend(AsyncExecutor(AsyncGivenClient(client, name), name), **_names(options))
        backend = PostgresBackend(BlockingExecutor(GivenClient(client, name), name), **_names(options))
        drive(backend.prepare(deadline))
        return backend
