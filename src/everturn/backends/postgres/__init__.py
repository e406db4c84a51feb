"""PostgreSQL 14 or later: the entry point of the schemes `postgresql` and `postgres`.

    __init__.py     this: URLs, options, and clients that we are given
    backend.py      the protocol's operations, each one call of a function in the database
    change_wire.py     changes on the wire; core/message_batches.py puts those that wait into one statement
    reads.py        what the rows of a read mean; verify.py what is wrong with a session
    transfer.py        sessions in and out, for copies between backends
    executor.py        one statement out, its rows back: blocking or awaited
    connections.py  connections that keep to a deadline, and their pools
    libpq_append.py       the plain append, below psycopg's cursors
    cancellation.py   the end of connections whose caller has gone
    errors.py       PostgreSQL's errors as ours
    open_checks.py       settings of the server that break what we promise
    schema.py       schema/*, the stored form and the functions by version

calls.sql and schema.sql hold the statements we send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from everturn.backends._shared.options import namespace, switch, whole_number
from everturn.core.masking import ESCAPES
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.postgres.backend import AsyncPostgresBackend, PostgresBackend

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
    **dict.fromkeys(_OF_LIBPQ, str),
}


def load_driver() -> None:
    """Import psycopg, and what of ours needs it."""
    from everturn.backends.postgres import backend, connections, executor  # noqa: F401 - imported is all it takes


def open(url: str, options: Mapping[str, Any], deadline: float) -> PostgresBackend:  # noqa: A001 - the protocol's name
    """Connect to the database that a URL names, and create or migrate everturn's schema in it.

    Warns of settings under which turns can be lost, unless told `warnings=off`. Raises InvalidInput, Unsupported,
    SchemaTooNew, MemoryStoreBackendError.
    """
    from everturn.backend import drive
    from everturn.backends.postgres.backend import PostgresBackend
    from everturn.backends.postgres.connections import Pool
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import BlockingPort

    conninfo, name = _conninfo(url, options)
    pool = Pool(conninfo, options.get("pool_size", POOL_SIZE), name)
    try:
        with translated(name):
            backend = PostgresBackend(BlockingPort(pool, name), **_names(options))
            drive(backend.prepare(deadline))
    except BaseException:
        pool.close()
        raise
    return backend


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> AsyncPostgresBackend:
    """The same in the running event loop."""
    from everturn.backends.postgres.backend import AsyncPostgresBackend
    from everturn.backends.postgres.connections import AsyncPool
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import AsyncPort

    conninfo, name = _conninfo(url, options)
    pool = AsyncPool(conninfo, options.get("pool_size", POOL_SIZE), name)
    try:
        with translated(name):
            backend = AsyncPostgresBackend(AsyncPort(pool, name), **_names(options))
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
    }


def _conninfo(url: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """What libpq connects to, and what to call it in errors: without its password."""
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
    """A backend over a client that stays the caller's: it keeps its own time, and is open when the store is closed.

    Raises InvalidInput for a connection that is not idle and in autocommit mode. An asynchronous one is asked nothing
    before the first call of the store.
    """
    from everturn.backend import drive
    from everturn.backends.postgres.backend import AsyncPostgresBackend, PostgresBackend
    from everturn.backends.postgres.errors import translated
    from everturn.backends.postgres.executor import AsyncGiven, AsyncPort, BlockingPort, Given, checked_connection

    for name in options:
        if name == "pool_size" or name in _OF_LIBPQ:
            raise InvalidInput("belongs to the client you gave; set it there", path=name)
    if not hasattr(client, "getconn"):
        checked_connection(client)
    name = "PostgreSQL"
    with translated(name):
        if adopts(client) == "async":
            return AsyncPostgresBackend(AsyncPort(AsyncGiven(client, name), name), **_names(options))
        backend = PostgresBackend(BlockingPort(Given(client, name), name), **_names(options))
        drive(backend.prepare(deadline))
        return backend
