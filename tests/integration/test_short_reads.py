"""Reads of the latest messages on SQLite: they fetch no more than they return, and run where they are quickest."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import (
    AsyncMemoryStore,
    ChatMessage,
    MemoryStore,
    MemoryStoreBackendError,
    Summary,
    ToolCall,
)
from everturn.backend import FRONT_ENTRIES
from everturn.backends.sqlite import async_backend
from everturn.backends.sqlite.packed_rows import MOST_LINES
from everturn.core.message_batches import MessageReader

K = 20


def url(path: Path) -> str:
    return f"sqlite:///{path}/memory.db?synchronous=OFF"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with everturn.open(url(tmp_path)) as store:
        yield store


def said(*numbers: int) -> list[ChatMessage]:
    return [ChatMessage("user", str(number)) for number in numbers]


class Fetched:
    """The statements of a connection, and the lines of the log that these fetched."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.lines = 0

    def begin(self, cursor: Any, sql: str, _bindings: object) -> bool:
        self.statements.append(sql)
        return True

    def row(self, cursor: Any, row: Any) -> Any:
        if "FROM entries" in self.statements[-1]:
            self.lines += row[4]  # its count
        return row


@contextmanager
def watched(store: MemoryStore) -> Iterator[Fetched]:
    """Watch the connection that short reads use."""
    connection: apsw.Connection = store._operations.backend._database._writer  # type: ignore[attr-defined]  # SQLite's
    fetched = Fetched()
    connection.exec_trace, connection.row_trace = fetched.begin, fetched.row  # type: ignore[assignment]
    try:
        yield fetched
    finally:
        connection.exec_trace = connection.row_trace = None


def plain(store: MemoryStore) -> None:
    for start in range(0, 100_000, 1_000):
        store.add_messages("a", said(*range(start, start + 1_000)))


def in_turns_of_two(store: MemoryStore) -> None:
    for number in range(0, 600, 2):
        store.add_messages("a", said(number, number + 1))


def rolled_back(store: MemoryStore) -> None:
    """Each turn is followed by one that a rollback takes away: 1,000 ranges."""
    for number in range(1_000):
        snapshot = store.add_messages("a", said(number)) and store.save_snapshot("a")
        store.add_messages("a", said(-1, -2))
        store.rollback_to_snapshot("a", snapshot)


def rolled_back_far(store: MemoryStore) -> None:
    """Between two messages of the path lie a hundred that are not on it."""
    for number in range(50):
        snapshot = store.add_messages("a", said(number)) and store.save_snapshot("a")
        store.add_messages("a", said(*range(100)))
        store.rollback_to_snapshot("a", snapshot)


def replaced(store: MemoryStore) -> None:
    """Of every turn of two one message is on the path."""
    after = 0
    for number in range(1_000):
        after = store.replace("a", said(number, -1), after=after).seqs[0]


def trimmed(store: MemoryStore) -> None:
    store.add_messages("a", [ChatMessage("system", "s")])
    in_turns_of_two(store)
    store.trim("a", max_messages=100)


def cleared(store: MemoryStore) -> None:
    in_turns_of_two(store)
    store.clear("a")
    in_turns_of_two(store)


HISTORIES = [plain, in_turns_of_two, rolled_back, rolled_back_far, replaced, trimmed, cleared]
any_history = pytest.mark.parametrize("make", HISTORIES)


def bound(make: object) -> int:
    """Most lines that a read of K messages may fetch: one message more, the rest of a row at either end, and of a row
    that a rollback went into, its other lines, too."""
    return 2 * K + MOST_LINES if make is replaced else K + 1 + 2 * MOST_LINES


@any_history
def test_the_latest_messages_fetch_no_more_than_is_asked_for(
    store: MemoryStore, make: Callable[[MemoryStore], None]
) -> None:
    make(store)
    expected = store.get_history("a")[-K:]
    with watched(store) as fetched:
        assert store.get_history("a", limit=K) == expected
    assert K <= fetched.lines <= bound(make)
    most = K + 1 if make is rolled_back_far else 1  # statements that read rows; as many again walk the path
    assert len([sql for sql in fetched.statements if "FROM entries" in sql]) <= most
    assert len(fetched.statements) <= 2 * most + 8


@any_history
def test_a_context_is_one_read_of_what_it_returns(store: MemoryStore, make: Callable[[MemoryStore], None]) -> None:
    """One transaction. Beside the latest messages it fetches the few that its history begins with."""
    make(store)
    store.get_context("a", max_messages=K)
    with watched(store) as fetched:
        context = store.get_context("a", max_messages=K)
    assert context.messages
    assert len([sql for sql in fetched.statements if sql.startswith("BEGIN")]) == 1
    assert fetched.lines <= bound(make) + FRONT_ENTRIES + 3 * MOST_LINES


@any_history
def test_a_page_before_a_seq_fetches_no_more_than_is_asked_for(
    store: MemoryStore, make: Callable[[MemoryStore], None]
) -> None:
    make(store)
    history = store.get_history("a")
    before = history[-K].seq
    with watched(store) as fetched:
        page = store.get_history("a", limit=K, before=before)
    assert page == history[-2 * K : -K]
    assert [message.seq for message in page] == [message.seq for message in history[-2 * K : -K]]
    assert K <= fetched.lines <= bound(make) + (MOST_LINES if make is replaced else 0)


def test_entries_between_messages_are_fetched_once(store: MemoryStore) -> None:
    for number in range(0, 600, 2):
        store.add_messages("a", said(number, number + 1))
        store.add_tool_call("a", ToolCall("f", {"n": number}))
        store.add_summary("a", Summary("s", [1.0, 2.0], (1, 2)))
    expected = store.get_history("a")[-K:]
    with watched(store) as fetched:
        assert store.get_history("a", limit=K) == expected
    assert fetched.lines <= 3 * K  # half of the entries are messages
    assert len([sql for sql in fetched.statements if "FROM entries" in sql]) <= 3


def test_a_long_read_leaves_the_connection_that_writes_alone(store: MemoryStore) -> None:
    in_turns_of_two(store)
    with watched(store) as fetched:
        assert len(store.get_history("a")) == 600
        assert len(store.get_history("a", limit=500)) == 500
    assert fetched.statements == []


def test_after_a_read_that_failed_the_next_change_sees_the_present(tmp_path: Path) -> None:
    """The traceback of an error holds statements that were not read to their end, and these an old moment."""
    with everturn.open(url(tmp_path)) as store, everturn.open(url(tmp_path)) as other:
        store.add_messages("a", said(*range(100)))
        held = []

        def fail(db: Any) -> None:
            held.append(db.execute("SELECT id FROM entries"))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store._operations.backend._commits.look(fail, time.monotonic() + 60)  # type: ignore[attr-defined]  # SQLite's
        other.add_messages("a", said(1))
        assert store.add_messages("a", said(2)).version == 3


# --- for an event loop -----------------------------------------------------------------------------------------------


@contextmanager
def noting_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Note in which threads messages are decoded."""
    threads: list[int] = []
    take = MessageReader.take

    def noting(self: MessageReader, rows: Any) -> None:
        threads.append(threading.get_ident())
        take(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(MessageReader, "take", noting)
        yield threads


Scenario = Callable[[AsyncMemoryStore], Coroutine[Any, Any, None]]


def play(path: Path, scenario: Scenario) -> None:
    """Run a scenario in an event loop, on a store of 600 messages."""

    async def run() -> None:
        async with await everturn.open_async(url(path)) as store:
            for number in range(0, 600, 100):
                await store.add_messages("a", said(*range(number, number + 100)))
            await scenario(store)

    asyncio.run(run())


def test_a_short_read_runs_in_the_thread_of_the_loop_and_a_long_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: AsyncMemoryStore) -> None:
        with noting_threads(monkeypatch) as threads:
            assert len(await store.get_history("a", limit=K)) == K
            assert len(await store.get_history("a", limit=500)) == 500
        assert threads[0] == threading.get_ident()
        assert threading.get_ident() not in threads[1:]

    play(tmp_path, scenario)


def test_after_a_slow_read_the_next_is_left_to_a_thread_until_one_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: AsyncMemoryStore) -> None:
        with noting_threads(monkeypatch) as threads:
            monkeypatch.setattr(async_backend, "SLOW", 0.0)
            await store.get_history("a", limit=K)
            await store.get_history("a", limit=K)
            monkeypatch.setattr(async_backend, "SLOW", 60.0)
            await store.get_history("a", limit=K)
            await store.get_history("a", limit=K)
        here = threading.get_ident()
        assert [thread == here for thread in threads] == [True, False, False, True]

    play(tmp_path, scenario)


def test_a_short_read_that_would_wait_for_a_lock_waits_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_work: object, _deadline: float) -> None:
        raise MemoryStoreBackendError("busy", outcome="not_written") from apsw.BusyError("locked")

    async def scenario(store: AsyncMemoryStore) -> None:
        backend: Any = store._operations.backend
        with noting_threads(monkeypatch) as threads, monkeypatch.context() as patch:
            patch.setattr(backend._commits, "look", refused)
            assert len(await store.get_history("a", limit=K)) == K
        assert threads
        assert threading.get_ident() not in threads

    play(tmp_path, scenario)


def test_the_loop_never_waits_for_a_lock(tmp_path: Path) -> None:
    async def scenario(store: AsyncMemoryStore) -> None:
        backend: Any = store._operations.backend
        waits = []

        def look(db: Any) -> bool:
            waits.append(db.patience.wait(0))
            return True

        deadline = time.monotonic() + 60
        assert await backend._read_shortly(look, deadline)
        assert waits == [False]
        assert await backend._read(look, deadline)
        assert waits == [False, True]

    play(tmp_path, scenario)
