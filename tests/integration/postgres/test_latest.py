"""The latest k messages: one statement, k rows, and little else looked at, however long or edited the session is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStore, Record, Summary, ToolCall
from everturn.backends.postgres.arrays import register
from everturn.backends.postgres.executor import Rows, SqlCall
from everturn.testing.servers import PostgresServer

K = 20
SHORT, LONG = 60, 300


class CountingExecutor:
    """Runs calls over one connection. Counts statements, rows that came back, and rows that the server looked at."""

    name = "PostgreSQL"

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        register(connection)
        self._connection = connection
        self._looked_at = (
            "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
            f" WHERE schemaname = '{schema}'"
        )
        self.statements = 0
        self.rows = 0
        self.looks: Counter[str] = Counter()

    async def run(self, call: SqlCall, deadline: float) -> Rows:
        del deadline
        self.statements += 1
        with self._connection.transaction():
            rows = self._connection.cursor(binary=True).execute(call.statement, call.parameters).fetchall()
            self.looks.update(dict(self._connection.execute(self._looked_at).fetchall()))  # type: ignore[arg-type]
        self.rows += len(rows)
        return rows

    async def close(self) -> None:
        pass


def messages(count: int) -> list[ChatMessage]:
    return [ChatMessage("user", str(number)) for number in range(count)]


def plain(store: MemoryStore, length: int) -> None:
    store.add_messages("a", messages(length))


def rolled_back(store: MemoryStore, length: int) -> None:
    """Every turn was said twice: a range for each."""
    for message in messages(length // 2):
        snapshot = store.save_snapshot("a")
        store.add_messages("a", [message, message])
        store.rollback_to_snapshot("a", snapshot)
        store.add_messages("a", [message])


def trimmed(store: MemoryStore, length: int) -> None:
    store.add_messages("a", [ChatMessage("system", "be brief")])
    for _ in range(length // 10):
        store.add_messages("a", messages(10))
    store.trim("a", max_messages=length // 2)


def trimmed_to_few(store: MemoryStore, length: int) -> None:
    """The latest are those that a trim left, and a system message that it kept."""
    store.add_messages("a", [ChatMessage("system", "be brief")])
    for _ in range(length // 10):
        store.add_messages("a", messages(10))
    store.trim("a", max_messages=11)


def cleared(store: MemoryStore, length: int) -> None:
    store.add_messages("a", messages(length))
    store.clear("a")
    store.add_messages("a", messages(K + 5))


def mixed(store: MemoryStore, length: int) -> None:
    for number in range(length // 4):
        store.append(
            "a",
            [*messages(2), ToolCall("f", {"n": number}, result="1"), Summary("so far", [1.0, 0.0], (1, number + 1))],
        )


def folded(store: MemoryStore, length: int) -> None:
    """A summary stands for most of it, and a tool call is among the latest."""
    store.add_messages("a", [ChatMessage("system", "be brief")])
    for _ in range(length // 10):
        store.add_messages("a", messages(10))
    store.fold("a", lambda *_: "so far", max_messages=length // 2)
    store.add_tool_call("a", ToolCall("f", {}, result="1"))
    store.add_messages("a", messages(2))


def records_taken_back(store: MemoryStore, length: int) -> None:
    """In the log, entries that a rollback took back lie before the latest messages."""
    store.add_messages("a", messages(length))
    snapshot = store.save_snapshot("a")
    store.append("a", [Record("note", {})] * length)
    store.rollback_to_snapshot("a", snapshot)
    store.add_messages("a", messages(2))


SHAPES: dict[str, Callable[[MemoryStore, int], None]] = {
    shape.__name__: shape
    for shape in (plain, rolled_back, trimmed, trimmed_to_few, cleared, mixed, folded, records_taken_back)
}
# Entries looked at for each of the k. Where as many others are between: to find the k, to see that none is missing,
# and to hand over the messages.
ENTRIES = {"mixed": 7, "folded": 4, "records_taken_back": 4}


@pytest.fixture
def counting(server: PostgresServer, schema: str) -> Callable[[Callable[[MemoryStore], Any]], CountingExecutor]:
    """A function that runs a call of the store, on tables that nobody has analyzed, and counts."""

    def count(call: Callable[[MemoryStore], Any]) -> CountingExecutor:
        with everturn.open(server.url, schema=schema, timeout=60) as store, psycopg.connect(server.url) as connection:
            store.info("a")
            executor = CountingExecutor(connection, schema)
            backend: Any = store._operations.backend
            kept, backend._executor = backend._executor, executor
            try:
                call(store)
            finally:
                backend._executor = kept
            return executor

    return count


def fill(url: str, schema: str, beside: psycopg.Connection[Any], shape: str, length: int) -> None:
    with everturn.open(url, timeout=60) as store:
        for table in ("sessions", "entries", "jumps", "changes"):
            beside.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")  # type: ignore[arg-type]
        SHAPES[shape](store, length)


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_latest_are_one_statement_that_looks_at_them_alone(
    shape: str, url: str, schema: str, beside: psycopg.Connection[Any], counting: Any, *, analyzed: bool
) -> None:
    fill(url, schema, beside, shape, LONG)
    if analyzed:
        beside.execute("ANALYZE")
    found: list[ChatMessage] = []
    counted = counting(lambda store: found.extend(store.get_history("a", limit=K)))
    assert len(found) == (11 if shape == "trimmed_to_few" else K)
    assert counted.statements == 1
    assert counted.rows <= K + 1
    assert counted.looks["entries"] <= ENTRIES.get(shape, 1) * K + 5
    assert counted.looks["jumps"] <= K + 2
    assert counted.looks["sessions"] <= 1
    assert counted.looks["changes"] == counted.looks["snapshots"] == 0


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_page_before_a_seq_looks_at_that_page(
    shape: str, url: str, schema: str, beside: psycopg.Connection[Any], counting: Any
) -> None:
    fill(url, schema, beside, shape, LONG)
    with everturn.open(url) as store:
        shown = store.get_history("a")
    before = shown[-5].seq
    found: list[ChatMessage] = []
    counted = counting(lambda store: found.extend(store.get_history("a", limit=3, before=before)))
    assert found == shown[-8:-5]
    assert (counted.statements, counted.rows) == (1, 4)
    assert counted.looks["entries"] <= ENTRIES.get(shape, 1) * 3 + 5
    assert counted.looks["jumps"] <= 3 + 5 + 2


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_longer_session_is_not_looked_at_for_longer(
    shape: str, url: str, schema: str, beside: psycopg.Connection[Any], counting: Any
) -> None:
    fill(url, schema, beside, shape, SHORT)
    short = counting(lambda store: store.get_history("a", limit=K))
    with everturn.open(url) as store:
        store.erase("a")
    fill(url, schema, beside, shape, LONG)
    long = counting(lambda store: store.get_history("a", limit=K))
    assert long.looks["entries"] <= short.looks["entries"] + 2
    assert long.looks["jumps"] <= short.looks["jumps"] + 2


def test_an_append_is_one_statement_that_looks_at_no_entry(
    url: str, schema: str, beside: psycopg.Connection[Any], counting: Any
) -> None:
    fill(url, schema, beside, "plain", LONG)
    for key in (None, "k"):
        counted = counting(lambda store, key=key: store.add_messages("a", messages(2), key=key))
        assert (counted.statements, counted.rows) == (1, 1)
        assert counted.looks["entries"] == counted.looks["jumps"] == 0
        assert counted.looks["changes"] <= 5  # those since it was issued, for an attempt that came twice
