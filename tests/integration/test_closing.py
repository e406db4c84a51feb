"""Stores that are closed while others write, and event loops that go on meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

import everturn
from everturn import (
    MemoryStoreBackendError,
)
from tests.integration.attempts import Attempt, play, queue
from tests.integration.children import eventually, eventually_async, locked
from tests.integration.disks import HeldDisk
from tests.integration.turns import (
    SESSION,
    Acknowledged,
    acknowledged,
    check_file,
    turn,
    url,
    write,
)
from tests.tiers import first

# --- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round_", first(2, range(5)))
def test_threads_that_write_while_the_store_is_closed_get_a_receipt_or_an_error(
    path: Path, disk: HeldDisk, tmp_path: Path, round_: int
) -> None:
    store = everturn.open(url(path), vfs=disk.name, timeout=50)
    attempts = [Attempt(lambda n=n: write(store, tmp_path, f"thread-{n}", range(100_000))) for n in range(6)]
    eventually(lambda: len(acknowledged(tmp_path)) == 6 and all(acknowledged(tmp_path).values()), "all write")
    store.close()
    for attempt in attempts:
        error = attempt.outcome()
        assert isinstance(error, MemoryStoreBackendError)
        assert (error.outcome, "closed" in str(error)) == ("not_written", True)
    store.close()  # a second close does nothing
    check_file(path, tmp_path)


@pytest.mark.parametrize("round_", first(2, range(10)))
def test_tasks_that_write_while_the_store_is_closed_get_a_receipt_or_an_error(
    path: Path, disk: HeldDisk, tmp_path: Path, round_: int
) -> None:
    async def write_on(store: everturn.AsyncMemoryStore, writer: str) -> None:
        record = Acknowledged(tmp_path, writer)
        for number in range(100_000):
            await store.add_messages(SESSION, turn(writer, number))
            record(number)

    async def story() -> None:
        store = await everturn.open_async(url(path), vfs=disk.name, timeout=50)
        tasks = [asyncio.create_task(write_on(store, f"task-{n}")) for n in range(20)]
        await eventually_async(lambda: sum(map(len, acknowledged(tmp_path).values())) > 40 + round_, "they write")
        await store.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [MemoryStoreBackendError] * 20
        assert {error.outcome for error in errors} == {"not_written"}
        assert all("closed" in str(error) for error in errors)
        await store.close()

    play(story)
    check_file(path, tmp_path)


def test_a_closed_store_says_so_to_every_call(path: Path) -> None:
    async def story() -> None:
        store = await everturn.open_async(url(path), timeout=50)
        await store.close()
        for call in (store.add_messages(SESSION, turn("me", 0)), store.get_history(SESSION), store.erase(SESSION)):
            with pytest.raises(MemoryStoreBackendError, match="closed"):
                await call

    play(story)
    store = everturn.open(url(path))
    store.close()
    for call in (lambda: store.add_messages(SESSION, turn("me", 0)), lambda: store.get_history(SESSION)):
        with pytest.raises(MemoryStoreBackendError, match="closed"):
            call()


# --- the event loop ---------------------------------------------------------------------------------------------------


def test_the_event_loop_goes_on_while_a_change_waits_for_another_process(path: Path) -> None:
    """The loop itself ends what the change waits for: if the change blocked it, neither would ever come."""

    async def story() -> None:
        async with await everturn.open_async(url(path), timeout=30) as store:
            with locked(path) as lock:
                change = asyncio.create_task(store.add_messages(SESSION, turn("me", 0)))
                await eventually_async(lambda: len(queue(store)) == 1, "the change waits")
                for _ in range(100):
                    await asyncio.sleep(0)  # a heart that beats
                    assert await store.get_history(SESSION) == []
                assert not change.done()
                lock.release()
                assert (await change).version == 1

    play(story)


def test_the_event_loop_goes_on_while_a_store_is_opened_or_closed(path: Path) -> None:
    apsw.Connection(str(path)).close()

    async def story() -> None:
        with locked(path) as lock:
            opening = asyncio.create_task(everturn.open_async(url(path), timeout=30))
            for _ in range(100):
                await asyncio.sleep(0.0001)
            assert not opening.done(), "the tables cannot be there yet"
            lock.release()
            store = await opening
        with locked(path) as lock:
            change = asyncio.create_task(store.add_messages(SESSION, turn("me", 0)))
            await eventually_async(lambda: len(queue(store)) == 1, "the change waits")
            closing = asyncio.create_task(store.close())
            for _ in range(100):
                await asyncio.sleep(0.0001)
            lock.release()
            await closing
            outcome = (await asyncio.gather(change, return_exceptions=True))[0]
        with everturn.open(url(path)) as reopened:
            kept = len(reopened.get_history(SESSION))
        assert kept == (0 if isinstance(outcome, MemoryStoreBackendError) else 2)

    play(story)
