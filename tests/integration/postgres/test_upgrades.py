"""Schemas of every earlier version: they are migrated in one transaction, and show what they showed."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage
from everturn.backend import drive
from everturn.backends.postgres import schema as versions
from everturn.backends.postgres.connections import TimedPool
from everturn.backends.postgres.executor import BlockingExecutor
from everturn.testing.servers import PostgresServer
from tests.migrations.postgres_rows import expectations, golden, put_rows

EARLIER = range(1, versions.CURRENT)


@pytest.fixture
def executor(server: PostgresServer) -> Any:
    pool = TimedPool(server.url, 1, "PostgreSQL")
    yield BlockingExecutor(pool, "PostgreSQL")
    pool.close()


def old_schema(executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, version: int) -> Any:
    """Make a schema as the everturn of that version left it. Returns what it showed."""
    drive(versions.migrate(executor, schema, float("inf"), version))
    kept = json.loads(golden(version).read_text("utf-8"))
    assert kept["schema"] == version
    put_rows(beside, schema, kept["rows"])
    return kept["expected"]


@pytest.mark.parametrize("version", EARLIER)
def test_a_schema_of_an_earlier_version_shows_what_it_showed(
    version: int, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
) -> None:
    expected = old_schema(executor, beside, schema, version)
    with everturn.open(url, timeout=60) as store:
        assert store.verify().ok
        assert expectations(store) == expected
        assert store.verify().ok
    found = beside.execute(f"SELECT version FROM {schema}.schema_versions ORDER BY version").fetchall()  # type: ignore[call-overload]
    assert [number for (number,) in found] == [*range(1, versions.CURRENT + 1)]


@pytest.mark.parametrize("version", EARLIER)
def test_a_schema_of_an_earlier_version_can_be_written_to(
    version: int, executor: BlockingExecutor, beside: psycopg.Connection[Any], schema: str, url: str
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
