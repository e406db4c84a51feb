"""Schemas of every earlier version: they are migrated in one transaction, and show what they showed."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, InvalidInput
from everturn.backend import drive
from everturn.backends.postgres import schema as versions
from everturn.backends.postgres import statements
from everturn.backends.postgres.connections import TimedPool
from everturn.backends.postgres.executor import BlockingExecutor
from everturn.core import codec
from everturn.testing.servers import PostgresServer
from tests.migrations.postgres_rows import current_script, expectations, golden, put_rows, scripts

EARLY = "1-early"  # version 1 as an earlier main had it: tombstones without receipts
EARLIER = [EARLY, *range(1, versions.CURRENT)]
ALL = [*EARLIER, versions.CURRENT]  # rows of the current version, too, as a later one will have to read them


@pytest.fixture
def executor(server: PostgresServer) -> Any:
    pool = TimedPool(server.url, 1, "PostgreSQL")
    yield BlockingExecutor(pool, "PostgreSQL")
    pool.close()


def old_schema(beside: psycopg.Connection[Any], schema: str, version: int | str) -> Any:
    """Make a schema as the everturn of that version left it. Returns what it showed."""
    kept = json.loads(golden(version).read_text("utf-8"))
    made = statements.load("schema.sql", schema)
    with beside.transaction():
        for name in ("search_path", "unchecked", "create_schema", "create_record"):
            beside.execute(made[name])  # type: ignore[call-overload]
        for script in scripts(version):
            beside.execute(statements.read(script, schema))  # type: ignore[call-overload]
        beside.execute(made["insert_records"], ("0.1.0", 1, kept["schema"]))  # type: ignore[call-overload]
    put_rows(beside, schema, kept["rows"])
    return kept["expected"]


def catalog(beside: psycopg.Connection[Any], schema: str) -> set[str]:
    """Describe every table, column, type, constraint, index, view, trigger and function of a schema."""
    here = f"= '{schema}'::regnamespace"
    queries = (
        f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace {here}",
        f"""SELECT concat_ws(' ', c.relkind, c.relname, c.reloptions, pg_get_viewdef(c.oid))
              FROM pg_class c WHERE c.relnamespace {here}""",
        f"""SELECT concat_ws(' ', c.relname, rank() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname,
                             a.attnotnull, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation,
                             a.attidentity, pg_get_expr(d.adbin, d.adrelid), a.attstorage)
              FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace {here} AND NOT a.attisdropped""",
        f"SELECT concat_ws(' ', 'type', typname, typtype) FROM pg_type WHERE typnamespace {here}",
        f"SELECT pg_get_constraintdef(oid) || conname FROM pg_constraint WHERE connamespace {here}",
        f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}'",
        f"""SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
             WHERE c.relnamespace {here} AND NOT t.tgisinternal""",
    )
    found: set[str] = set()
    for query in queries:
        rows = [row for (row,) in beside.execute(query).fetchall()]  # type: ignore[call-overload]
        assert rows, query
        found |= {row.replace(schema, "everturn") for row in rows}
    return found


@pytest.mark.parametrize("version", ALL)
def test_a_schema_of_an_earlier_version_shows_what_it_showed(
    version: int | str, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    expected = old_schema(beside, schema, version)
    with everturn.open(url, timeout=60) as store:
        assert store.verify().ok
        assert expectations(store) == expected
        assert store.verify().ok
    rows = beside.execute(f"SELECT version, applied_at FROM {schema}.schema_versions ORDER BY version").fetchall()  # type: ignore[call-overload]
    assert [number for number, _ in rows] == [*range(1, versions.CURRENT + 1)]
    began_at = {applied_at for number, applied_at in rows if number > json.loads(golden(version).read_text())["schema"]}
    assert len(began_at) == (version != versions.CURRENT), "all pending migrations are one transaction"


@pytest.mark.parametrize("version", EARLIER)
def test_a_schema_of_an_earlier_version_can_be_written_to(
    version: int | str, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    old_schema(beside, schema, version)
    with everturn.open(url, timeout=60) as store:
        for name in [session.session_id for session in store.sessions().sessions]:
            before = store.get_history(name)
            store.add_messages(name, [ChatMessage("user", "after the upgrade")])
            store.add_messages(name, [ChatMessage("user", "once more")], key="a new one")
            assert store.get_history(name)[:-2] == before
            assert [message.content for message in store.get_history(name, limit=2)] == [
                "after the upgrade",
                "once more",
            ]
        assert store.verify().ok


@pytest.mark.parametrize("version", EARLIER)
def test_a_schema_of_an_earlier_version_becomes_what_a_new_one_is(
    version: int | str, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    old_schema(beside, schema, version)
    everturn.open(url, timeout=60).close()
    drive(versions.migrate(executor, f"{schema}_new", float("inf")))
    assert catalog(beside, schema) == catalog(beside, f"{schema}_new")


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("version", [3, 4])
def test_effects_of_an_earlier_version_do_not_begin_again(
    version: int, beside: psycopg.Connection[Any], schema: str, url: str, *, lost: bool
) -> None:
    """They are linked by the migration; not so where one is lost, which only version 4 knows."""
    old_schema(beside, schema, version)
    named = f"SELECT s.session_id, e.key FROM {schema}.effects e JOIN {schema}.sessions s ON s.no = e.session"
    begun = beside.execute(named).fetchall()  # type: ignore[call-overload]
    assert begun
    if lost:
        beside.execute(f"DELETE FROM {schema}.effects WHERE key = %s", (begun[0][1],))  # type: ignore[call-overload]
    with everturn.open(url, timeout=60) as store:
        for name, key in begun:
            if lost and version == 4 and key == begun[0][1]:
                with pytest.raises(CorruptEntry):
                    store.begin_effect(name, key)
            elif not lost:
                failed = [effect.key for effect in store.get_effects(name) if effect.status == "failed"]
                assert (store.begin_effect(name, key).status == "new") == (key in failed)
                assert store.begin_effect(name, f"another {key}").status == "new"
        assert lost or store.verify().ok


@pytest.mark.parametrize("version", EARLIER)
def test_sessions_of_an_earlier_version_can_be_erased_and_forked(
    version: int | str, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    """Both look into tombstones, and an erasure leaves one: with the receipts of what it erased."""
    old_schema(beside, schema, version)
    with everturn.open(url, timeout=60) as store:
        store.fork("talk", "talk/another")
        assert store.get_history("talk/another") == store.get_history("talk")
        changes = len(list(store.changes("talk")))
        assert store.erase("talk").complete
        store.add_messages("talk", [ChatMessage("user", "a new life")])
        assert [message.content for message in store.get_history("talk")] == ["a new life"]
        receipts = f"SELECT count(*) FROM {schema}.tombstones t, jsonb_object_keys(t.calls)"
        assert beside.execute(receipts).fetchall() == [(changes,)]  # type: ignore[call-overload]
        assert store.verify().ok


def test_a_schema_from_before_version_1_was_fixed_is_refused_and_left_untouched(
    beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    old_schema(beside, schema, 1)
    beside.execute(f"DROP TABLE {schema}.tombstones CASCADE")  # type: ignore[call-overload]
    before = catalog(beside, schema)
    with pytest.raises(InvalidInput, match=r"before 0\.1\.0.* left untouched.* `everturn export`"):
        everturn.open(url, timeout=60)
    assert catalog(beside, schema) == before


def test_functions_that_are_changed_need_a_new_version() -> None:
    """A database that has this version is not migrated again. To make its files: -m tests.migrations.postgres_rows."""
    assert current_script() == golden(versions.CURRENT).with_suffix(".sql").read_text("utf-8")


def test_every_function_compiles(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    """A migration does not look into their bodies."""
    everturn.open(url).close()
    validate = """
        SELECT CASE l.lanname WHEN 'sql' THEN fmgr_sql_validator(p.oid) ELSE plpgsql_validator(p.oid) END
          FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = %s::regnamespace
    """
    assert len(beside.execute(validate, (schema,)).fetchall()) > 100
    broken = f"CREATE FUNCTION {schema}.broken() RETURNS void LANGUAGE plpgsql AS 'BEGIN nonsense; END'"
    with beside.transaction():
        beside.execute("SET LOCAL check_function_bodies = off")
        beside.execute(broken)  # type: ignore[call-overload]
    with pytest.raises(psycopg.errors.SyntaxError):
        beside.execute(validate, (schema,))


def test_workers_of_the_version_before_go_on_while_others_are_new(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    """Every statement that they send is still understood."""
    everturn.open(url).close()
    calls = golden(versions.CURRENT - 1).with_name(f"postgres-v{versions.CURRENT - 1}-calls.sql")
    sent = re.findall(r"^-- (\w+): .+\n((?:(?!--).*\n?)+)", statements.read(calls, schema), re.MULTILINE)
    assert len(sent) > 30
    for name, statement in sent:
        numbers = itertools.count(1)
        understood = re.sub("%s", lambda _: f"${next(numbers)}", statement)  # noqa: B023 - used at once
        beside.execute(f"PREPARE {name} AS {understood}")  # type: ignore[call-overload]


def test_a_worker_of_the_version_before_writes_what_a_new_one_reads(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    draft = codec.encode(ChatMessage("user", "old"), "message", 1000)
    append = f"""
        SELECT status, version FROM {schema}.change_v2(
            '', ARRAY['a'], ARRAY[sha256('1')], NULL, '{{1}}', ARRAY[%s::int8], ARRAY[%s], ARRAY[%s::int8], NULL, 1000,
            extract(epoch FROM clock_timestamp())::double precision, '{{1e12}}', NULL)
    """
    turn = (len(draft.body), draft.body.decode(), draft.checksum)
    with everturn.open(url) as store:
        store.add_messages("a", [ChatMessage("user", "new")])
        assert beside.execute(append, turn).fetchall() == [("applied", 2)]  # type: ignore[call-overload]
        store.add_messages("a", [ChatMessage("user", "new again")])
        assert [message.content for message in store.get_history("a")] == ["new", "old", "new again"]
        assert store.verify().ok
