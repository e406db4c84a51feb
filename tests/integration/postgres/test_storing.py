"""What only PostgreSQL does: row locks, batches, texts it could refuse, plans, and plain SQL on top."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStoreBackendError, Record, Summary, ToolCall
from everturn.testing.servers import PostgresServer, wait_until
from tests.integration.writers import Ledger, Writers, every_kind, turn, turns
from tests.store.speech import gives_up_after

pytestmark = pytest.mark.one_schema

ODD = ["\0", "a\0b", "\u2028", "é\u0301", "\U0001f600", "'; DROP TABLE x; --", "%s", "\\", '"', "{}", "\x7f", "\ufffe"]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back(url: str, text: str) -> None:
    with everturn.open(url) as store:
        store.append("a", [ChatMessage("user", text), ToolCall(text, {text: text}), Record("r", text)])
        state = store.state("a")
        assert state.messages[0].content == text
        assert (state.tool_calls[0].name, state.tool_calls[0].arguments) == (text, {text: text})
        assert state.records[0].body == text
        assert store.verify().ok


@pytest.mark.parametrize("session_id", [text for text in ODD if "\0" not in text] + ["x" * 512, "a/b:c{d}", " "])
def test_odd_ids_are_sessions_of_their_own(url: str, session_id: str) -> None:
    with everturn.open(url) as store:
        store.add_messages(session_id, turn("1"))
        snapshot = store.save_snapshot(session_id, session_id)
        store.rollback_to_snapshot(session_id, snapshot)
        assert [found.session_id for found in store.sessions(session_id).sessions] == [session_id]
        assert store.list_snapshots(session_id)[0].label == session_id
        assert store.get_history(session_id + "x"[: 512 - len(session_id.encode())] or "y")[:0] == []


def test_large_turns_travel(url: str) -> None:
    with everturn.open(url, timeout=60) as store:
        store.add_messages("a", [ChatMessage("user", "x" * 2**20) for _ in range(8)])
        store.add_messages("b", [ChatMessage("user", str(number)) for number in range(10_000)])
        assert sum(len(message.text) for message in store.get_history("a")) == 8 * 2**20
        assert [message.content for message in store.get_history("b", limit=2)] == ["9998", "9999"]


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(url: str, schema: str, beside: psycopg.Connection[Any]) -> Iterator[None]:
    """The session `a` is locked by somebody else."""
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
    with beside.transaction():
        beside.execute(f"SELECT 1 FROM {schema}.sessions WHERE session_id = 'a' FOR UPDATE")
        yield


@pytest.mark.usefixtures("locked")
def test_a_session_that_stays_locked_is_not_written(url: str) -> None:
    with everturn.open(url) as store:
        for change in (lambda: store.add_messages("a", turn("2")), lambda: store.clear("a"), lambda: store.erase("a")):
            with gives_up_after(0.5, store), pytest.raises(MemoryStoreBackendError, match="locked") as caught:
                change()
            assert caught.value.outcome == "not_written"
        assert len(store.get_history("a")) == 2  # readers wait for nobody
        store.add_messages("b", turn("2"))


def test_an_exhausted_pool_is_not_written(url: str) -> None:
    with everturn.open(url):  # the schema is there: to create it may take a busy machine longer than two seconds
        pass
    with everturn.open(url, timeout=2, pool_size=1) as store, held(store):
        for call in (lambda: store.add_messages("a", turn("2")), lambda: store.get_history("a")):
            began = time.monotonic()
            with pytest.raises(MemoryStoreBackendError, match="no connection was free") as caught:
                call()
            assert caught.value.outcome == "not_written"
            assert time.monotonic() - began < 2 + 1.5
    with everturn.open(url) as store:
        assert store.get_history("a") == []


@contextmanager
def held(store: Any) -> Iterator[None]:
    """Somebody has the pool's only connection."""
    pool = store._operations.backend._executor._source
    connection = pool.take(time.monotonic() + 5)
    yield
    pool.give_back(connection)


def test_tasks_find_an_exhausted_pool_too(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url):  # as above
            pass
        async with await everturn.open_async(url, timeout=2, pool_size=1) as store:
            pool: Any = store._operations.backend._executor._source  # type: ignore[attr-defined]
            connection = await pool.take(time.monotonic() + 5)
            calls = [store.add_messages("a", turn("2")), store.add_messages("b", turn("2")), store.get_history("a")]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await pool.give_back(connection)
            assert [getattr(outcome, "outcome", outcome) for outcome in outcomes] == ["not_written"] * 3
            assert await store.get_history("a") == []

    asyncio.run(main())


@pytest.mark.usefixtures("locked")
def test_a_locked_session_fails_alone_in_its_batch(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=3) as store:
            sessions = [f"s{number}" for number in range(20)]
            calls = [store.add_messages(name, turn("2")) for name in ("a", *sessions)]
            first, *others = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(first, MemoryStoreBackendError)
            assert (first.outcome, [receipt.version for receipt in others]) == ("not_written", [1] * 20)  # type: ignore[union-attr]

    asyncio.run(main())


# --- batches ---------------------------------------------------------------------------------------------------------


def test_changes_that_wait_together_are_each_their_own(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20) as store:
            await store.add_messages("a", turn("0"))
            calls: list[Any] = [store.add_messages("a", turn(str(number))) for number in range(1, 30)]
            calls += [store.add_messages("a", turn("never"), expected_version=999), store.undo("nobody")]
            calls += [store.add_messages(f"s{number}", turn("x"), key="k") for number in range(50)]
            calls += [store.add_messages(f"s{number}", turn("x"), key="k") for number in range(50)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert sorted(outcome.version for outcome in outcomes[:29]) == list(range(2, 31))
            assert [type(outcome).__name__ for outcome in outcomes[29:31]] == ["VersionConflict", "SessionNotFound"]
            assert sum(outcome.replayed for outcome in outcomes[31:]) == 50
            assert len(await store.get_history("a")) == 60
            assert (await store.verify()).ok

    asyncio.run(main())


def test_cancelled_tasks_leave_whole_turns_or_none(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20) as store:
            tasks = [asyncio.create_task(store.add_messages("a", turn(str(n)), key=str(n))) for n in range(200)]
            for number, task in enumerate(tasks):
                if number % 3 == 0:
                    await asyncio.sleep(0)
                    task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            kept = {str(n) for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)}
            texts = [message.content for message in await store.get_history("a")]
            assert texts[::2] == texts[1::2]
            assert len(set(texts)) == len(texts) // 2
            assert kept <= set(texts)
            before = len(texts)
            await asyncio.sleep(0.1)
            assert len(await store.get_history("a")) == before, "a change landed after its caller had been told"

    asyncio.run(main())


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_stricter_isolation_by_default_costs_retries_and_nothing_else(url: str, isolation: str) -> None:
    ledger = Ledger()
    setting = f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    with Writers("threads", url, ledger, turns, every_kind, timeout=20, options=setting):
        ledger.progress(150)
    assert ledger.errors == []
    with everturn.open(url, timeout=20) as store:
        ledger.check(store)


# --- the stored form -------------------------------------------------------------------------------------------------


def test_the_view_shows_what_a_store_reads(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", [ChatMessage("system", "be kind"), *turn("1")])
        snapshot = store.save_snapshot("a")
        store.add_messages("a", turn("2"))
        store.append("a", [Summary("s", [1.0], (1, 2)), ToolCall("f", {})])
        store.rollback_to_snapshot("a", snapshot)
        store.add_messages("a", turn("3"))
        store.add_summary("a", Summary("t", [1.0], (1, 2)))
        store.add_messages("a", turn("4"))
        store.trim("a", max_messages=3)
        rows = beside.execute(f"SELECT seq FROM {schema}.history WHERE session_id = 'a' ORDER BY seq").fetchall()
        assert [seq for (seq,) in rows] == [entry.seq for entry in store.state("a").entries]


def test_erase_leaves_no_row_and_says_who_may_still_see(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
        store.save_snapshot("a")
        store.clear("a")
        with beside.transaction():
            beside.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            beside.execute(f"SELECT * FROM {schema}.entries")
            receipt = store.erase("a")
            assert (receipt.entries, receipt.snapshots, receipt.complete) == (2, 1, False)
        assert store.erase("a").complete
        for table in ("sessions", "names", "entries", "jumps", "snapshots", "undo_steps", "changes"):
            assert beside.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone() == (0,)


DAMAGE = [("kept", "'{NULL}'"), ("created_at", "'NaN'"), ("expires_at", "'Infinity'")]


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_a_damaged_row_of_a_session_is_corruption_and_can_be_erased(
    url: str, schema: str, beside: psycopg.Connection[Any], column: str, value: str
) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
        beside.execute(f"UPDATE {schema}.sessions SET {column} = {value}")
        for read in (store.get_history, store.info, store.state):
            with pytest.raises(CorruptEntry, match="sessions"):
                read("a")
        assert store.erase("a").entries == len(turn("1"))
        assert store.get_history("a") == []


def test_an_erasure_after_which_nobody_answers_is_one(url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
        backend = store._operations.backend
        real = backend._ask

        async def ask(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "is_still_seen":
                raise MemoryStoreBackendError("the server has gone", outcome="not_written")
            return await real(name, *args, **kwargs)

        backend._ask = ask
        receipt = store.erase("a")
        assert (receipt.entries, receipt.complete) == (len(turn("1")), False)


def test_an_erased_text_is_in_the_files_until_what_the_receipt_says_removes_it(
    server: PostgresServer, url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    marker = "SECRETOFTHECUSTOMER"

    def has_marker(folder: str) -> bool:
        beside.execute("CHECKPOINT")
        files = (path for path in (server.directory / "data" / folder).rglob("*") if path.is_file())
        return any(marker.encode() in path.read_bytes() for path in files)

    with everturn.open(url) as store:
        store.add_messages("a", turn(marker))
        receipt = store.erase("a")
        assert receipt.complete
        rows, log = receipt.remains
        assert "until VACUUM" in rows
        assert "WAL" in log
        assert has_marker("base")
        assert has_marker("pg_wal")
        beside.execute(f"VACUUM {schema}.entries")
        assert not has_marker("base")


def test_expired_sessions_are_reaped_by_many_at_once(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    with everturn.open(url, ttl=0.05) as store, everturn.open(url) as other:
        for number in range(20):
            store.add_messages(f"s{number}", turn("1"))
        time.sleep(0.1)
        assert (store.get_history("s1"), other.sessions().sessions) == ([], ())
        assert store.compact().entries == 40
        assert other.verify().ok
        assert beside.execute(f"SELECT count(*) FROM {schema}.changes").fetchone() == (0,)


def test_compact_of_a_long_session_among_short_ones_looks_at_each_entry_a_few_times(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    """The planner goes by what most sessions are like; a plan that suits those must not be a trap for the others."""
    with everturn.open(url) as store:
        for number in range(200):
            store.add_messages(f"short {number}", turn("x"))
        beside.execute(f"VACUUM ANALYZE {schema}.entries, {schema}.sessions")
        store.add_messages("long", [ChatMessage("user", str(number)) for number in range(2000)])
        for _ in range(11):
            store.replace("long", [ChatMessage("user", "all that is left")])
    before = read_so_far(beside, schema)
    with everturn.open(url) as store:
        assert store.compact("long").entries == 2000
    assert read_so_far(beside, schema) - before < 20 * 2000


def read_so_far(beside: psycopg.Connection[Any], schema: str) -> int:
    """How many entries the server has read for anybody who has disconnected."""
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn'"
    wait_until(lambda: beside.execute(open_ones).fetchone() == (0,), "the store's connections are closed")
    counters = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables"
    ((count,),) = beside.execute(f"{counters} WHERE relname = 'entries' AND schemaname = %s", (schema,)).fetchall()
    return int(count)
