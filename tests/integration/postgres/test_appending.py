"""The append of plain turns: one prepared statement, for one session or for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.postgres.timed_connections import ServerLimits
from everturn.testing.servers import wait_until
from tests.store.speech import say, words

pytestmark = pytest.mark.one_schema


def own_connection(store: Any) -> Any:
    """The one connection of a store with `pool_size=1`, which stays where it is."""
    (place,) = store._operations.backend._executor._source._connections._idle
    return place.item


def test_a_plain_turn_is_prepared_once_a_connection(url: str) -> None:
    with everturn.open(url, pool_size=1) as store:
        for word in "123":
            say(store, "a", word)
        prepared = own_connection(store).execute(
            "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE statement LIKE '%change_v5%'"
        )
        assert prepared.fetchall() == [(3,)]


def test_tasks_prepare_the_same_statement(url: str) -> None:
    async def main() -> list[Any]:
        async with await everturn.open_async(url, pool_size=1) as store:
            for _ in range(3):
                await asyncio.gather(*[store.save_context(f"s{number}", "1", "2") for number in range(5)])
            (connection,) = store._operations.backend._executor._source._idle  # type: ignore[attr-defined]
            prepared = await connection.execute("SELECT statement FROM pg_prepared_statements")
            return [statement for (statement,) in await prepared.fetchall()]

    (statement,) = asyncio.run(main())
    assert "change_v5" in statement


def test_nothing_is_prepared_behind_a_pooler(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler tells another process than the one that answers."""
    first = ServerLimits.first

    def of_another_process(limits: ServerLimits, connection: Any, deadline: float) -> tuple[str, tuple[Any, ...]]:
        statement, (_, limit, *_) = first(limits, connection, deadline)
        return statement, (0, limit, 0, limit)

    monkeypatch.setattr(ServerLimits, "first", of_another_process)
    with everturn.open(url, pool_size=1) as store:
        say(store, "a", "1")
        say(store, "a", "2")
        assert words(store, "a") == ["1", "2"]
        assert own_connection(store).execute("SELECT FROM pg_prepared_statements").fetchall() == []


FORGETS = {
    "the server forgot it": [b"DEALLOCATE ALL"],
    "a pooler's client prepared another": [b"PREPARE _pg3_%d AS SELECT 1" % number for number in range(20)],
}


@pytest.mark.parametrize("how", list(FORGETS))
@pytest.mark.parametrize("is_first", [True, False])
def test_a_statement_that_is_not_prepared_after_all_is_sent_again_and_made_once(
    url: str, how: str, *, is_first: bool
) -> None:
    with everturn.open(url, pool_size=1) as store:
        if not is_first:
            say(store, "a", "0")
        for statement in FORGETS[how]:
            own_connection(store).pgconn.exec_(statement)  # psycopg hears nothing of it
        assert words(store, "a") == ([] if is_first else ["0"])
        for number in range(1, 4):
            assert say(store, "a", str(number)).version == number + (not is_first)
        assert words(store, "a") == list("123" if is_first else "0123")


def test_a_turn_larger_than_any_buffer_arrives(url: str) -> None:
    text = "é" * 4_000_000
    with everturn.open(url, timeout=60) as store:
        say(store, "a", "1")
        store.add_messages("a", [ChatMessage("user", text), ChatMessage("assistant", text)])
        assert words(store, "a") == ["1", text, text]


def test_a_commit_that_fails_after_the_answer_was_sent_is_no_success(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    with everturn.open(url) as store:
        say(store, "a", "1")
        beside.execute(
            f"""
            CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
            CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {schema}.entries DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
            """
        )
        with pytest.raises(MemoryStoreBackendError, match="not today") as failure:
            say(store, "a", "2")
        assert failure.value.outcome == "not_written"
        assert words(store, "a") == ["1"]
        beside.execute(f"DROP TRIGGER late ON {schema}.entries")
        assert say(store, "a", "2").version == 2


def test_a_session_is_looked_up_by_its_name_in_a_table_that_nobody_has_analyzed(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    with everturn.open(url) as store:
        for number in range(60):
            say(store, f"s{number}", "1")
    lookup = f"SELECT * FROM {schema}.sessions WHERE namespace = '' AND session_id = 's7' AND NOT ended"
    beside.execute("SET enable_seqscan = off")
    plan = "\n".join(line for (line,) in beside.execute(f"EXPLAIN {lookup}"))
    assert "sessions_by_name" in plan
    latest = f"SELECT * FROM {schema}.sessions WHERE namespace = '' AND NOT ended AND changed_in <= 1e9::bigint"
    plan = "\n".join(line for (line,) in beside.execute(f"EXPLAIN {latest} ORDER BY changed_in DESC LIMIT 10"))
    assert "sessions_by_change" in plan


def test_whatever_writes_a_time_of_a_session_writes_its_step(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    wrong = f"""
        SELECT session_id, changed_at, changed_in, expires_at, expires_in FROM {schema}.sessions
         WHERE changed_in IS DISTINCT FROM floor(changed_at / 300)::bigint
            OR expires_in IS DISTINCT FROM floor(expires_at / 300)::bigint
    """

    async def say_at_once() -> None:
        async with await everturn.open_async(url, ttl=1000) as store:
            await asyncio.gather(*[store.save_context(f"s{number % 5}", "1", "2") for number in range(20)])

    with everturn.open(url) as store, everturn.open(url, ttl=1000) as brief, everturn.open("sqlite://") as elsewhere:
        changes: list[Callable[[], Any]] = [
            lambda: say(store, "a", "1"),
            lambda: say(store, "a", "2"),
            lambda: say(store, "a", "3", key="k"),
            lambda: store.set_ttl("a", 10_000),
            lambda: say(store, "a", "4"),
            lambda: store.clear("a"),
            lambda: store.fork("a", "b"),
            lambda: say(brief, "c", "1"),
            lambda: brief.fork("c", "d"),
            lambda: asyncio.run(say_at_once()),
            lambda: asyncio.run(say_at_once()),
            lambda: store.set_ttl("a", None),
            lambda: everturn.copy(store, elsewhere),
            lambda: [store.erase(name) for name in ("a", "c")],
            lambda: everturn.copy(elsewhere, store),
        ]
        for change in changes:
            change()
            assert beside.execute(wrong).fetchall() == []  # type: ignore[arg-type]  # the schema is the test's own
        assert beside.execute(f"SELECT count(*) FROM {schema}.sessions WHERE NOT ended").fetchone() == (9,)  # type: ignore[arg-type]


def test_a_batch_looks_at_its_own_sessions_only(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    looked_at = f"""
        SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
         WHERE schemaname = '{schema}' AND relname = 'sessions'
    """

    async def say_to(count: int) -> None:
        async with await everturn.open_async(url) as store:
            await asyncio.gather(*[store.save_context(f"s{number}", "1", "2") for number in range(count)])

    def looks() -> int:
        # A server process says what it did when it ends, at the latest.
        ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn'"
        wait_until(lambda: beside.execute(ours).fetchone() == (0,), "the store's connections are gone")
        (found,) = beside.execute(looked_at).fetchone() or (0,)  # type: ignore[arg-type]
        return int(found)

    asyncio.run(say_to(3000))
    before = looks()
    asyncio.run(say_to(20))
    assert 20 <= looks() - before < 1000


def test_a_time_out_longer_than_the_server_can_count_is_no_hindrance(url: str) -> None:
    with everturn.open(url, timeout=1e9) as store:
        assert store.save_context("a", "Hello", "Hi!", key="k").version == 1
        assert store.save_context("a", "Hello", "Hi!").version == 2
        assert store.erase("a").entries == 4
