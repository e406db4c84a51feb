"""Roles: one that owns the schema, one that works in it, and one that may create in `public` and is no friend."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import everturn
from everturn.backends.postgres import backend as backends
from everturn.testing.servers import PostgresServer
from tests.integration.surface import whole_surface
from tests.integration.writers import turn

_numbers = itertools.count()


@pytest.fixture
def roles(server: PostgresServer, beside: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """The URLs of an owner, a worker and a stranger, in a database of their own."""
    database = f"roles_{next(_numbers)}"
    beside.execute(f"CREATE DATABASE {database}")
    urls = {}
    for name in ("owner", "worker", "stranger"):
        beside.execute(f"CREATE ROLE {name}_{database} LOGIN")
        urls[name] = f"postgresql://{name}_{database}@{server.address}/{database}"
    yield urls
    beside.execute(f"DROP DATABASE {database} WITH (FORCE)")
    beside.execute("".join(f"DROP ROLE {name}_{database};" for name in urls))


def in_database(server: PostgresServer, url: str, statements: str) -> None:
    with psycopg.connect(server.url, dbname=url.rpartition("/")[2], autocommit=True) as connection:
        connection.execute(statements)


def role_of(url: str) -> str:
    return url.partition("//")[2].partition("@")[0]


def let_in(server: PostgresServer, roles: dict[str, str]) -> None:
    """Give owner and worker what docs/operations.md says, word for word; the owner creates the schema in between."""
    page = Path("docs/operations.md").read_text("utf-8").partition("## Least privileges")[2]
    before, after = (part.partition("```")[0] for part in page.split("```pgsql\n")[1:])
    database = roles["owner"].rpartition("/")[2]
    for statements in (before, after):
        statements = statements.replace("DATABASE memory", f"DATABASE {database}")  # noqa: PLW2901 - the same ones
        for role in ("owner", "worker"):
            statements = statements.replace(f"memory_{role}", role_of(roles[role]))  # noqa: PLW2901
        in_database(server, roles["owner"], statements)
        if statements.count("DATABASE"):
            everturn.open(roles["owner"], timeout=20).close()


def test_a_worker_needs_what_the_docs_grant_and_no_more(server: PostgresServer, roles: dict[str, str]) -> None:
    let_in(server, roles)
    with everturn.open(roles["worker"], timeout=20) as store, everturn.open("sqlite://") as other:
        whole_surface(store)
        store.add_messages("c", turn("1"))
        assert everturn.copy(store, other).ok
        store.erase("c")
        assert everturn.copy(other, store).ok
        assert store.get_history("c")
    with psycopg.connect(roles["worker"], autocommit=True) as worker:
        for statement in (
            "CREATE TABLE everturn.mine ()",
            "DROP TABLE everturn.entries",
            "DELETE FROM everturn.schema_versions",
            "CREATE SCHEMA another",
            "ALTER FUNCTION everturn.now_v1 RESET ALL",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement)


# --- a stranger ------------------------------------------------------------------------------------------------------

FUNCTIONS = """
    cardinality(bigint[]) format(text,bigint) sha256(bytea) convert_to(text,name) octet_length(text)
    get_byte(bytea,integer)
    array_to_string(text[],text) set_config(text,text,boolean) current_setting(text) floor(double__precision) now()
    clock_timestamp() encode(bytea,text) decode(text,text) quote_ident(text) to_regnamespace(text) to_regclass(text)
    pg_backend_pid() hashtext(text) pg_advisory_xact_lock(integer,integer) pg_current_xact_id() pg_is_in_recovery()
    pg_stat_get_wal_receiver() pg_stat_get_wal_senders() current_database() json_populate_record(json,json)
    substring(bytea,integer,integer) date_part(text,interval) make_interval(double__precision)
    to_timestamp(double__precision)
    pg_has_role(name,text) concat(text,text) coalesce(bigint,bigint) greatest(bigint,bigint) unnest(bigint[])
    unnest(text[]) json_array_elements(json) sum(bigint) count() max(integer) min(bigint) sign(bigint)
"""
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||")
OPERANDS = ("bigint", "integer", "text", "bytea", "double precision", "name", "boolean", "interval", "bigint[]")
TABLES = (
    "sessions",
    "entries",
    "names",
    "jumps",
    "changes",
    "schema_versions",
    "pg_tables",
    "pg_stat_activity",
    "pg_class",
)


def plant(connection: psycopg.Connection[Any]) -> int:
    """Put the stranger's own under every name that a careless statement could reach. Returns how much is there."""
    planted = 0
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the stranger was called'; END $$"
    for written in FUNCTIONS.split():
        signature = written.replace("__", " ")
        name, _, arguments = signature.partition("(")
        connection.execute(f'CREATE FUNCTION public."{name}"({arguments} RETURNS bigint {body}')
        planted += 1
    for kind in OPERANDS:
        connection.execute(f"CREATE FUNCTION public.trap(a {kind}, b {kind}) RETURNS boolean {body}")
        for operator in OPERATORS:
            connection.execute(
                f"CREATE OPERATOR public.{operator} (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = public.trap)"
            )
            planted += 1
    for table in TABLES:
        connection.execute(f"CREATE TABLE public.{table} (a int)")
    return planted


@pytest.mark.parametrize("path", ['"$user", public', "public, pg_catalog"])
def test_nothing_that_a_stranger_planted_is_called(server: PostgresServer, roles: dict[str, str], path: str) -> None:
    """Not even where the role's own search_path puts `public` first, and not through a client that is given to us."""
    in_database(server, roles["owner"], f"GRANT CREATE, USAGE ON SCHEMA public TO {role_of(roles['stranger'])}")
    with psycopg.connect(roles["stranger"], autocommit=True) as stranger:
        assert plant(stranger) > 100
    for name in ("owner", "worker"):
        in_database(server, roles["owner"], f"ALTER ROLE {role_of(roles[name])} SET search_path = {path}")
    let_in(server, roles)  # which creates the schema
    with everturn.open(roles["worker"], timeout=20) as store:
        whole_surface(store)
    with psycopg.connect(roles["worker"], autocommit=True) as given:
        given.execute("SET search_path = public, pg_catalog")
        with everturn.from_client(given) as store:
            whole_surface(store)
        given.execute("SELECT * FROM everturn.history WHERE session_id OPERATOR(pg_catalog.=) 'b'")


def test_every_function_looks_names_up_in_pg_catalog_alone(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    everturn.open(url).close()
    functions = beside.execute(
        "SELECT proname, prosqlbody IS NOT NULL, proconfig FROM pg_proc WHERE pronamespace = %s::regnamespace",
        (schema,),
    ).fetchall()
    assert len(functions) > 50
    pins = {"search_path=pg_catalog, pg_temp", "enable_seqscan=off", "enable_bitmapscan=off", "jit=off"}
    for name, is_parsed, settings in functions:
        assert is_parsed or pins <= set(settings or ()), name


def test_our_connections_look_names_up_in_pg_catalog_alone(url: str) -> None:
    with everturn.open(url) as store:
        backend: backends.PostgresBackend = store._operations.backend  # type: ignore[assignment]
        pool: Any = backend._executor._source  # type: ignore[attr-defined]
        connection = pool.take(1e12)
        assert connection.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)
        pool.give_back(connection)
