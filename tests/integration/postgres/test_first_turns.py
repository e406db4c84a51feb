"""The first turn of a session, while requests about its lease are under way: a name can be leased without a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import everturn
from everturn import LeaseHeld, MemoryStore
from tests.integration.writers import turn

pytestmark = pytest.mark.one_schema
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def first(url: str) -> Iterator[MemoryStore]:
    with everturn.open(url, timeout=30) as store:
        yield store


@pytest.fixture
def second(url: str) -> Iterator[MemoryStore]:
    with everturn.open(url, timeout=30) as store:
        yield store


@pytest.fixture
def one_behind_the_other(schema: str, beside: psycopg.Connection[Any]) -> Iterator[Callable[..., list[Future[Any]]]]:
    """Begin two calls: the second while the first has written all that comes before its row of a table."""
    with ThreadPoolExecutor(2) as threads:

        def begin(table: str, *calls: Callable[[], Any]) -> list[Future[Any]]:
            with locked(beside, f"{schema}.{table}"):
                begun = []
                for number, call in enumerate(calls, 1):
                    begun.append(threads.submit(call))
                    until(beside, WAITING, number)
            return begun

        yield begin


@contextmanager
def locked(beside: psycopg.Connection[Any], table: str) -> Iterator[None]:
    with psycopg.connect(beside.info.dsn) as other, other.transaction():
        other.execute(f"LOCK TABLE {table} IN SHARE MODE")  # type: ignore[call-overload]
        yield


def until(beside: psycopg.Connection[Any], query: str, number: int) -> None:
    deadline = time.monotonic() + 30
    while beside.execute(query).fetchall() != [(number,)]:  # type: ignore[call-overload]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_takes_the_lease_under_which_a_session_begins(
    first: MemoryStore, second: MemoryStore, one_behind_the_other: Any
) -> None:
    """It was the lease of a name, and is that of a life by the time that the other worker may look at it."""
    lease = first.lease("a", seconds=60)
    begins, takes = one_behind_the_other(
        "changes", lambda: first.add_messages("a", turn("1"), lease=lease), lambda: second.lease("a")
    )
    assert begins.result(30).version == 1
    with pytest.raises(LeaseHeld):
        takes.result(30)
    first.add_messages("a", turn("2"), lease=lease)


def test_a_lease_that_is_renewed_while_its_session_begins_is_kept(
    first: MemoryStore, one_behind_the_other: Any
) -> None:
    lease = first.lease("a", seconds=60)
    begins, renews = one_behind_the_other(
        "changes", lambda: first.add_messages("a", turn("1"), lease=lease), lease.renew
    )
    assert begins.result(30).version == 1
    renews.result(30)
    first.add_messages("a", turn("2"), lease=lease)


@pytest.mark.parametrize("table", ["names", "changes"])
def test_two_turns_of_one_lease_that_begin_a_session_are_both_written(
    first: MemoryStore, second: MemoryStore, one_behind_the_other: Any, table: str
) -> None:
    lease = first.lease("a", seconds=60)
    calls = [lambda store=store: store.add_messages("a", turn("1"), lease=lease) for store in (first, second)]
    assert [call.result(30).version for call in one_behind_the_other(table, *calls)] == [1, 2]


def test_a_turn_with_a_lease_and_one_without_that_begin_a_session_do_not_wait_for_each_other(
    first: MemoryStore, second: MemoryStore, one_behind_the_other: Any, beside: psycopg.Connection[Any], url: str
) -> None:
    lease = first.lease("a", seconds=60)
    ((before,),) = beside.execute(DEADLOCKS).fetchall()
    begun = one_behind_the_other(
        "names",
        lambda: second.add_messages("a", turn("1")),
        lambda: first.add_messages("a", turn("2"), lease=lease),
    )
    assert [call.result(30).version for call in begun] == [1, 2]
    first.close()
    second.close()  # each connection tells what it counted when it ends
    until(beside, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'", 1)
    assert beside.execute(DEADLOCKS).fetchall() == [(before,)]


def test_an_erasure_that_found_no_session_leaves_the_lease_of_the_one_that_begins(
    first: MemoryStore, second: MemoryStore, one_behind_the_other: Any
) -> None:
    """Else the next holder's lease would have the same token."""
    lease = first.lease("a", seconds=60)
    begins, erases = one_behind_the_other(
        "changes", lambda: first.add_messages("a", turn("1"), lease=lease), lambda: second.erase("a")
    )
    assert begins.result(30).version == 1
    assert erases.result(30).entries == 0
    with pytest.raises(LeaseHeld):
        second.lease("a")
    first.add_messages("a", turn("2"), lease=lease)
