"""Turns that name a lease, or expect a version: tried without a look, and refused if the lease goes while they wait."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import everturn
from everturn import LeaseLost, VersionConflict
from tests.integration.writers import turn

START = 1e9


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Any:
    with everturn.open(url, timeout=30) as store:
        store._operations.backend._clock = clock  # type: ignore[attr-defined]
        yield store


def until_it_waits(change: Future[Any], beside: psycopg.Connection[Any]) -> None:
    """Wait until the change waits for a row that is locked."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%change_v5%'"
    deadline = time.monotonic() + 30
    while beside.execute(query).fetchall() == [(0,)]:
        assert not change.done()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_alone(beside: psycopg.Connection[Any]) -> None:
    """Wait until no other connection is left: each tells what it counted when it ends."""
    query = """
        SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    """
    deadline = time.monotonic() + 30
    while beside.execute(query).fetchall() != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("is_known", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("what", ["take", "release"])
def test_a_turn_that_waits_while_its_lease_goes_is_refused(
    store: Any, url: str, schema: str, clock: Clock, beside: psycopg.Connection[Any], what: str, is_known: bool
) -> None:
    """By its own time the lease is in force: it read the time and the lease before it waited for the row."""
    store.add_messages("a", turn("1"))
    clock.now += 0.1
    lease = store.lease("a", seconds=60)
    clock.now += 0.1
    if is_known:
        store.add_messages("a", turn("2"), lease=lease)
        clock.now += 0.1
    before = store.state("a")
    with psycopg.connect(beside.info.dsn, autocommit=True) as other, ThreadPoolExecutor(1) as threads:
        with other.transaction():
            holder, token, at = (
                ("another", 0, START + 100) if what == "take" else (lease._holder, lease.token, clock.now)
            )
            status = other.execute(
                f"SELECT status FROM {schema}.lease_v3('', 'a', %s, %s, %s, 30, 9000, %s, 1e12, %s)",  # type: ignore[arg-type]
                (what, holder, token, at, at),
            ).fetchone()
            assert status == ("applied",)
            waiting = threads.submit(store.add_messages, "a", turn("3"), lease=lease)
            until_it_waits(waiting, beside)
        with pytest.raises(LeaseLost):
            waiting.result(30)
    assert store.state("a") == before


def test_a_turn_that_waits_until_its_lease_is_over_is_refused(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    """Nobody else has it. But others were told that nobody holds it."""
    with everturn.open(url, timeout=30) as store, ThreadPoolExecutor(1) as threads:
        store.add_messages("a", turn("1"))
        lease = store.lease("a", seconds=2)
        store.add_messages("a", turn("2"), lease=lease)
        before = store.state("a")
        with psycopg.connect(beside.info.dsn, autocommit=True) as other, other.transaction():
            other.execute(f"SELECT FROM {schema}.sessions FOR UPDATE")  # type: ignore[call-overload]
            waiting = threads.submit(store.add_messages, "a", turn("3"), lease=lease)
            until_it_waits(waiting, beside)
            deadline = time.monotonic() + 30
            while store.get_lease("a") is not None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with pytest.raises(LeaseLost):
            waiting.result(30)
        assert store.state("a") == before


def test_a_turn_that_waits_while_another_is_written_meets_another_version(
    store: Any, schema: str, clock: Clock, beside: psycopg.Connection[Any]
) -> None:
    first = store.add_messages("a", turn("1"))
    clock.now += 0.1
    with psycopg.connect(beside.info.dsn, autocommit=True) as other, ThreadPoolExecutor(1) as threads:
        with other.transaction():
            other.execute(f"UPDATE {schema}.sessions SET version = 2, tally = tally + 40503")  # type: ignore[call-overload]
            waiting = threads.submit(store.add_messages, "a", turn("2"), expected_version=first)
            until_it_waits(waiting, beside)
        with pytest.raises(VersionConflict) as caught:
            waiting.result(30)
    assert caught.value.actual == 2


def test_a_turn_with_a_lease_or_a_version_needs_no_look(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    looks = f"SELECT calls FROM pg_stat_user_functions WHERE schemaname = '{schema}' AND funcname = 'apply_v2'"
    with everturn.open(f"{url}&options=-c%20track_functions%3Dall") as store:
        receipt = store.add_messages("a", turn("1"))
        with store.lease("a") as lease:
            for number in range(5):
                receipt = store.add_messages("a", turn(f"{number}"), lease=lease, expected_version=receipt)
        receipt = store.add_messages("a", turn("6"), expected_version=receipt.version)
        with pytest.raises(LeaseLost):
            store.add_messages("a", turn("7"), lease=lease)
    until_alone(beside)
    # The first turn, which began the session, and the one that was refused.
    assert beside.execute(looks).fetchall() == [(2,)]  # type: ignore[call-overload]


@pytest.mark.parametrize("edit", ["NULL", "999", "1"])
def test_the_token_in_the_sessions_row_alone_lets_nobody_write_and_stops_nobody(
    store: Any, schema: str, clock: Clock, beside: psycopg.Connection[Any], edit: str
) -> None:
    store.add_messages("a", turn("1"))
    clock.now += 0.1
    gone = store.lease("a")
    gone.release()
    held = store.lease("a")
    assert (gone.token, held.token) == (1, 2)
    beside.execute(f"UPDATE {schema}.sessions SET lease = {edit}")  # type: ignore[call-overload]
    with pytest.raises(LeaseLost):
        store.add_messages("a", turn("2"), lease=gone)
    store.add_messages("a", turn("3"), lease=held)
    assert [message.content for message in store.get_history("a", limit=2)] == [
        message.content for message in turn("3")
    ]
    assert store.verify().ok
