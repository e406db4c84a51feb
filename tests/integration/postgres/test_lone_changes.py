"""Changes that no other waits beside are sent in the task of their caller: what happens if it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import everturn
from everturn.testing.servers import PostgresServer
from tests.integration.children import eventually_async
from tests.integration.writers import turn

pytestmark = pytest.mark.one_schema


def senders(store: Any) -> int:
    return len(store._operations.backend._batcher._small._senders)


def waits_for_a_lock(watcher: psycopg.Connection[Any]) -> bool:
    ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn' AND wait_event_type = 'Lock'"
    return bool(watcher.execute(ask).fetchone()[0])  # type: ignore[index]


@pytest.fixture
def locked(server: PostgresServer, url: str, schema: str) -> Any:
    """A connection that holds the row of session "a"."""
    with everturn.open(url, timeout=20) as store:
        store.add_messages("a", turn("first"))
    with psycopg.connect(server.url) as connection:
        connection.execute(f"SELECT FROM {schema}.sessions WHERE session_id = 'a' FOR UPDATE")
        yield connection


def test_a_caller_that_is_cancelled_hears_of_it_when_its_change_has_settled(
    url: str, locked: psycopg.Connection[Any], beside: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20) as store:
            task = asyncio.create_task(store.add_messages("a", turn("second")))
            await eventually_async(lambda: waits_for_a_lock(beside), "the change waits for the lock")
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "it heard of the cancel before its change had settled"
            locked.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(await store.get_history("a")) == 4
            assert senders(store) == 0

    asyncio.run(main())


def test_a_change_that_waits_for_a_lock_is_withdrawn_when_its_caller_is_cancelled(
    url: str, locked: psycopg.Connection[Any], beside: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=60) as store:
            task = asyncio.create_task(store.add_messages("a", turn("second")))
            await eventually_async(lambda: waits_for_a_lock(beside), "the change waits for the lock")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not waits_for_a_lock(beside)
            locked.rollback()
            assert len(await store.get_history("a")) == 2
            await store.add_messages("a", turn("third"))

    asyncio.run(main())


def test_changes_that_came_meanwhile_are_sent_after_one_that_was_cancelled(
    url: str, locked: psycopg.Connection[Any], beside: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20, pool_size=1) as store:
            first = asyncio.create_task(store.add_messages("a", turn("second")))
            await eventually_async(lambda: waits_for_a_lock(beside), "the change waits for the lock")
            others = [asyncio.create_task(store.add_messages(f"b{number}", turn("x"))) for number in range(5)]
            await asyncio.sleep(0)
            first.cancel()
            locked.rollback()
            receipts = await asyncio.gather(*others)
            assert [receipt.version for receipt in receipts] == [1] * 5
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(main())


def test_a_change_that_is_cancelled_before_it_was_sent_is_not_written(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20) as store:
            await store.add_messages("a", turn("first"))
            for steps in range(3):  # of the loop, before there is a statement
                task = asyncio.create_task(store.add_messages("a", turn("second")))
                for _ in range(steps):
                    await asyncio.sleep(0)
                is_sent = steps == 2
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(await store.get_history("a")) == (4 if is_sent else 2)
                assert senders(store) == 0

    asyncio.run(main())


def test_a_time_out_of_the_callers_own_is_a_time_out(
    url: str, locked: psycopg.Connection[Any], beside: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=60) as store:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await store.add_messages("a", turn("second"))
            assert not waits_for_a_lock(beside)
            locked.rollback()
            await store.add_messages("a", turn("third"))

    asyncio.run(main())


def test_changes_of_one_step_of_the_loop_share_a_statement(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, timeout=20) as store:
            await store.add_messages("a", turn("first"))
            queue: Any = store._operations.backend._batcher._small  # type: ignore[attr-defined]
            begun = queue._begun
            await asyncio.gather(*[store.add_messages(f"s{number}", turn("x")) for number in range(30)])
            assert queue._begun == begun + 1

    asyncio.run(main())
