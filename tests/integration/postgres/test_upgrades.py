"""Schemas of every earlier version: they are migrated in one transaction, and show what they showed."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, InvalidInput
from everturn.backend import drive
from everturn.backends.postgres import schema as versions
from everturn.backends.postgres import statements
from everturn.backends.postgres.connections import TimedPool
from everturn.backends.postgres.executor import BlockingExecutor
from everturn.testing.servers import PostgresServer
from tests.migrations.postgres_rows import expectations, golden, put_rows

EARLY = "1-early"  # version 1 as an earlier main had it: tombstones without receipts
EARLIER = [EARLY, *range(1, versions.CURRENT)]
ALL = [*EARLIER, versions.CURRENT]  # rows of the current version, too, as a later one will have to read them


@pytest.fixture
def executor(server: PostgresServer) -> Any:
    pool = TimedPool(server.url, 1, "PostgreSQL")
    yield BlockingExecutor(pool, "PostgreSQL")
    pool.close()


def old_schema(executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, version: int | str) -> Any:
    """Make a schema as the everturn of that version left it. Returns what it showed."""
    kept = json.loads(golden(version).read_text("utf-8"))
    if isinstance(version, int):
        drive(versions.migrate(executor, schema, float("inf"), version))
        assert kept["schema"] == version
    else:
        script = statements.read(golden(version).with_suffix(".sql"), schema)
        made = statements.load("schema.sql", schema)
        with beside.transaction():
            for statement in (made["search_path"], made["create_schema"], made["create_record"], script):
                beside.execute(statement)  # type: ignore[call-overload]
            beside.execute(made["insert_record"], (kept["schema"], "0.1.0"))  # type: ignore[call-overload]
    put_rows(beside, schema, kept["rows"])
    return kept["expected"]


def catalog(beside: psycopg.Connection[Any], schema: str) -> set[str]:
    """Describe every function, column, type, index and constraint of a schema."""
    functions = f"""SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace"""
    columns = f"""
        SELECT concat_ws(' ', c.relkind, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                         pg_get_expr(d.adbin, d.adrelid), a.attstorage)
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = '{schema}'::regnamespace AND NOT a.attisdropped"""
    rules = f"""SELECT pg_get_constraintdef(oid) || conname FROM pg_constraint
                 WHERE connamespace = '{schema}'::regnamespace"""
    triggers = f"""SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
                    WHERE c.relnamespace = '{schema}'::regnamespace AND NOT t.tgisinternal"""
    found: set[str] = set()
    for query in (functions, columns, rules, triggers):
        found |= {row.replace(schema, "everturn") for (row,) in beside.execute(query).fetchall()}  # type: ignore[call-overload]
    return found


@pytest.mark.parametrize("version", ALL)
def test_a_schema_of_an_earlier_version_shows_what_it_showed(
    version: int | str, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    expected = old_schema(executor, beside, schema, version)
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
    version: int | str, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    old_schema(executor, beside, schema, version)
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
    old_schema(executor, beside, schema, version)
    everturn.open(url, timeout=60).close()
    drive(versions.migrate(executor, f"{schema}_new", float("inf")))
    assert catalog(beside, schema) == catalog(beside, f"{schema}_new")


@pytest.mark.parametrize("version", EARLIER)
def test_sessions_of_an_earlier_version_can_be_erased_and_forked(
    version: int | str, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    """Both look into tombstones, and an erasure leaves one: with the receipts of what it erased."""
    old_schema(executor, beside, schema, version)
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
    executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    drive(versions.migrate(executor, schema, float("inf"), 1))
    beside.execute(f"DROP TABLE {schema}.tombstones CASCADE")  # type: ignore[call-overload]
    before = catalog(beside, schema)
    with pytest.raises(InvalidInput, match=r"before 0\.1\.0.* left untouched.* `everturn export`"):
        everturn.open(url, timeout=60)
    assert catalog(beside, schema) == before


def test_a_worker_of_version_1_that_is_still_open_goes_on(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    """Its functions are still there, and write the same rows."""
    append = f"""
        SELECT status, version FROM {schema}.append_v1('', ARRAY['a'], ARRAY[sha256('1')], '{{1}}', '{{33}}', NULL,
            ARRAY['{{"role":"user","content":"old"}}'], '{{3064532836}}', 1000,
            extract(epoch FROM clock_timestamp())::double precision, '{{1e12}}', NULL)
    """
    with everturn.open(url) as store:
        store.add_messages("a", [ChatMessage("user", "new")])
        assert beside.execute(append).fetchall() == [("applied", 2)]  # type: ignore[call-overload]
        store.add_messages("a", [ChatMessage("user", "new again")])
        read = (
            f"SELECT body FROM {schema}.read_v1('', 'a', 'message', NULL, NULL, 0, NULL, 2, false, NULL) WHERE seq > 0"
        )
        old, again = beside.execute(read).fetchall()  # type: ignore[call-overload]
        assert b'"old"' in old[0]
        assert b'"new again"' in again[0]
