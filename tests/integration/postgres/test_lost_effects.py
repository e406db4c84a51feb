"""An effect whose row was lost, altered or changed places does not begin again (docs/decisions/121)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import everturn
from everturn import CorruptEntry
from everturn.testing.servers import wait_until

KEYS = ("b", "d", "f", "h")
OURS = "session = (SELECT no FROM {0}.sessions WHERE session_id = 'a')"
LOST = {
    "no row": f"DELETE FROM {{0}}.effects WHERE {OURS} AND key = 'd'",
    "no rows": f"DELETE FROM {{0}}.effects WHERE {OURS}",
    "neither row nor link": f"DELETE FROM {{0}}.effects WHERE {OURS} AND key = 'd';"
    f"DELETE FROM {{0}}.effect_keys WHERE {OURS} AND key = 'd'",
    "neither first row nor link": f"DELETE FROM {{0}}.effects WHERE {OURS} AND key = 'b';"
    f"DELETE FROM {{0}}.effect_keys WHERE {OURS} AND key = 'b'",
    "neither last row nor link": f"DELETE FROM {{0}}.effects WHERE {OURS} AND key = 'h';"
    f"DELETE FROM {{0}}.effect_keys WHERE {OURS} AND key = 'h'",
    "neither rows nor links": f"DELETE FROM {{0}}.effects WHERE {OURS}; DELETE FROM {{0}}.effect_keys WHERE {OURS}",
    "nor a count": f"DELETE FROM {{0}}.effects WHERE {OURS}; DELETE FROM {{0}}.effect_keys WHERE {OURS};"
    "UPDATE {0}.sessions SET effects = 0 WHERE session_id = 'a'",
    "another name": f"UPDATE {{0}}.effects SET key = 'e' WHERE {OURS} AND key = 'd'",
    "another status": f"UPDATE {{0}}.effects SET status = 'failed' WHERE {OURS}",
    "a link past it": f"DELETE FROM {{0}}.effects WHERE {OURS} AND key = 'd';"
    f"UPDATE {{0}}.effect_keys SET next_key = 'f' WHERE {OURS} AND key = 'b'",
    "a link of another session": f"DELETE FROM {{0}}.effects WHERE {OURS}; DELETE FROM {{0}}.effect_keys WHERE {OURS};"
    "UPDATE {0}.effect_keys SET session = (SELECT no FROM {0}.sessions WHERE session_id = 'a')",
}


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    with everturn.open(url, timeout=20) as store:
        for key in ("f", "b", "h", "d"):
            store.begin_effect("a", key)
        store.begin_effect("other", "c")
        yield store


def planted(beside: psycopg.Connection[Any], schema: str, script: str) -> None:
    """Change rows behind the store's back, as a disk does: no trigger seals them again."""
    with beside.transaction():
        beside.execute("SET LOCAL session_replication_role = replica")
        for statement in script.format(schema).split(";"):
            beside.execute(statement)  # type: ignore[call-overload]


@pytest.mark.parametrize("damage", LOST)
def test_an_effect_that_cannot_be_read_any_more_does_not_begin_again(
    store: Any, beside: psycopg.Connection[Any], schema: str, damage: str
) -> None:
    planted(beside, schema, LOST[damage])
    refused = 0
    for key in KEYS:
        try:
            assert store.begin_effect("a", key).status != "new", f"{key} begins again"
        except CorruptEntry:
            refused += 1
    assert refused
    assert "a" in {problem.session_id for problem in store.verify().problems}


def test_effects_begin_before_between_and_behind_those_that_are_there(store: Any) -> None:
    for key in ("\t", "a", "c", "e", "\u00e9", "i", "\U0010ffff"):
        assert store.begin_effect("a", key).status == "new"
        assert store.begin_effect("a", key).status == "started"
    assert len(store.get_effects("a")) == 11
    assert store.verify().ok


def test_links_go_with_their_session(store: Any, beside: psycopg.Connection[Any], schema: str) -> None:
    store.erase("a")
    store.compact()
    assert beside.execute(f"SELECT key FROM {schema}.effect_keys").fetchall() == [("c",)]  # type: ignore[call-overload]


def test_links_come_with_a_copy(store: Any) -> None:
    with everturn.open("sqlite://") as target:
        everturn.copy(store, target)
        assert target.begin_effect("a", "c").status == "new"
        everturn.copy(target, store)
        assert store.begin_effect("a", "e").status == "new"
        assert store.verify().ok


@pytest.mark.parametrize(
    "damage", ["UPDATE {}.effect_keys SET seal = '' WHERE key = 'f'", "DELETE FROM {}.effect_keys WHERE key = 'f'"]
)
def test_verify_names_a_link_that_is_lost_or_damaged(
    store: Any, beside: psycopg.Connection[Any], schema: str, damage: str
) -> None:
    planted(beside, schema, damage)
    assert any("link" in problem.what for problem in store.verify().problems)
    assert store.begin_effect("a", "f").status == "started"  # it has its row


def test_a_begin_reads_a_few_rows_among_many_effects(url: str, beside: psycopg.Connection[Any], schema: str) -> None:
    query = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
        f" WHERE schemaname = '{schema}' AND relname IN ('effects', 'effect_keys')"
    )

    def read() -> int:
        # A server process says what it did when it ends, at the latest.
        ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn'"
        wait_until(lambda: beside.execute(ours).fetchone() == (0,), "the store's connections are gone")
        (found,) = beside.execute(query).fetchone() or (0,)  # type: ignore[call-overload]
        return int(found or 0)

    def begin(first: int, last: int) -> int:
        before = read()
        with everturn.open(url, timeout=60) as store:
            for number in range(first, last):
                assert store.begin_effect("a", f"pay {number}").status == "new"
        return read() - before

    assert begin(0, 300)
    assert 10 <= begin(300, 310) <= 10 * 10
