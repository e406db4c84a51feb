"""The index of facts in PostgreSQL: how little it reads, and that damage to it is told."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import everturn
from everturn import CorruptEntry


@pytest.fixture
def store(url: str) -> Any:
    with everturn.open(url, timeout=60) as store:
        yield store


def looked_at(beside: psycopg.Connection[Any], schema: str, where: str, *, recent: bool) -> dict[str, int]:
    """How many rows of each table a search looked at."""
    counts = (
        "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
        f" WHERE schemaname = '{schema}'"
    )
    past, bound = ("", 1e300) if recent else ("", 0.0)
    call = f"SELECT count(*) FROM {schema}.sessions_by_fact_v4('', %s::jsonb, %s, '', NULL, %s, %s, 100, NULL)"
    with beside.transaction():
        before = dict(beside.execute(counts).fetchall())  # type: ignore[call-overload]
        ((found,),) = beside.execute(call, (where, recent, past, bound)).fetchall()  # type: ignore[arg-type]
        after = dict(beside.execute(counts).fetchall())  # type: ignore[call-overload]
    assert found == 2
    return {table: after[table] - before.get(table, 0) for table in after}


@pytest.mark.parametrize("recent", [False, True])
def test_a_search_reads_the_sessions_with_the_rarest_fact_alone(
    store: Any, beside: psycopg.Connection[Any], schema: str, *, recent: bool
) -> None:
    for number in range(300):
        user = "42" if number in (3, 7) else f"other {number}"
        store.set_facts(f"s{number:03}", {"plan": "free", "user": user})
    found = looked_at(beside, schema, '{"plan": "free", "user": "42"}', recent=recent)
    assert found["sessions"] <= 2
    assert found.get("entries", 0) == 0
    assert looked_at(beside, schema, '{"user": "42"}', recent=recent)["facts"] <= 8


@pytest.mark.parametrize(
    "damage", ["UPDATE {}.facts SET value = '43'", "UPDATE {0}.facts SET session = (SELECT max(no) FROM {0}.sessions)"]
)
def test_an_index_that_leads_astray_is_told(
    store: Any, beside: psycopg.Connection[Any], schema: str, damage: str
) -> None:
    store.set_facts("a", {"user": "42"})
    store.add_messages("b", [{"role": "user", "content": "1"}])
    beside.execute(damage.format(schema))  # type: ignore[call-overload]
    assert not store.verify().ok
    with pytest.raises(CorruptEntry):
        store.sessions(where={"user": "43" if "43" in damage else "42"})


def test_facts_that_were_changed_by_hand_are_damage(store: Any, beside: psycopg.Connection[Any], schema: str) -> None:
    store.set_facts("a", {"user": "42"})
    beside.execute(f"""UPDATE {schema}.sessions SET facts = '{{"user": "43"}}'""")  # type: ignore[call-overload]
    for read in (store.info, store.get_history):
        with pytest.raises(CorruptEntry):
            read("a")
