"""Changes that wait at the same time share a commit; each still has an outcome, and an error, of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import (
    InvalidInput,
    MemoryStore,
    MemoryStoreBackendError,
    SnapshotNotFound,
    Summary,
    VersionConflict,
)
from tests.integration.attempts import Attempt, play, queue
from tests.integration.children import eventually, eventually_async
from tests.integration.disks import HeldDisk
from tests.integration.turns import (
    SESSION,
    check,
    turn,
    url,
    write,
)

LARGE = "x" * 400_000


# --- one sync for many ---------------------------------------------------------------------------------------------


def test_sixty_four_tasks_share_a_few_syncs(path: Path, disk: HeldDisk) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), vfs=disk.name, timeout=50) as store:
            await store.add_messages("another session", turn("me", 0))
            before = disk.syncs
            await asyncio.gather(*(store.add_messages(SESSION, turn(f"task-{n}", 0)) for n in range(64)))
            assert disk.syncs - before <= 8
            check(await store.get_history(SESSION), {f"task-{n}": [0] for n in range(64)})

    play(story)


def test_threads_share_syncs(store: MemoryStore, disk: HeldDisk, tmp_path: Path) -> None:
    before = disk.syncs
    attempts = [Attempt(lambda n=n: write(store, tmp_path, f"thread-{n}", range(8))) for n in range(16)]
    assert [attempt.outcome() for attempt in attempts] == [None] * 16
    assert disk.syncs - before <= 16 * 8 / 2
    check(store.get_history(SESSION), {f"thread-{n}": list(range(8)) for n in range(16)})


def test_a_lone_writer_needs_one_sync_a_change(store: MemoryStore, disk: HeldDisk) -> None:
    """So the tests above count what they say they count."""
    before = disk.syncs
    for number in range(20):
        store.add_messages(SESSION, turn("me", number))
    assert disk.syncs - before == 20


# --- acknowledged means committed -----------------------------------------------------------------------------------


def test_threads_get_no_receipt_before_the_sync(store: MemoryStore, disk: HeldDisk) -> None:
    with disk.held():
        first = Attempt(lambda: store.add_messages(SESSION, turn("first", 0)))
        assert disk.reached.wait(60)
        others = [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"other-{n}", 0))) for n in range(4)]
        eventually(lambda: len(queue(store)) == 4, "four changes that wait")
        assert store.get_history(SESSION) == [], "visible before it is certain"
        assert all(attempt.is_alive() for attempt in [first, *others])
    assert {attempt.outcome().version for attempt in [first, *others]} == {1, 2, 3, 4, 5}


def test_tasks_get_no_receipt_before_the_sync(path: Path, disk: HeldDisk) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), vfs=disk.name, timeout=50) as store:
            with disk.held():
                tasks = [asyncio.create_task(store.add_messages(SESSION, turn(f"task-{n}", 0))) for n in range(20)]
                await eventually_async(disk.reached.is_set, "the sync")
                assert await store.get_history(SESSION) == []
                assert not any(task.done() for task in tasks)
            receipts = await asyncio.gather(*tasks)
            assert sorted(receipt.version for receipt in receipts) == list(range(1, 21))

    play(story)


@pytest.mark.parametrize("error", [None, OSError(5, "a disk's own")], ids=["SQLite's", "Python's"])
def test_a_failed_sync_leaves_the_whole_batch_in_doubt_and_a_key_finds_out(
    store: MemoryStore, disk: HeldDisk, error: OSError | None
) -> None:
    def attempt(number: int) -> Any:
        return store.add_messages(SESSION, turn(f"writer-{number}", 0), key=f"key {number}")

    with disk.held():
        first = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        attempts = [Attempt(lambda n=n: attempt(n)) for n in range(5)]
        eventually(lambda: len(queue(store)) == 5, "five changes that wait")
        disk.fail(2, error)
    outcomes = [attempt.outcome() for attempt in [first, *attempts]]
    assert [type(outcome) for outcome in outcomes] == [MemoryStoreBackendError] * 6
    assert {outcome.outcome for outcome in outcomes} == {"unknown"}, "after a failed sync nobody can know"
    for number in range(5):
        attempt(number)
    check(store.get_history(SESSION), {f"writer-{number}": [0] for number in range(5)})
    assert store.verify().ok


# --- one bad change -------------------------------------------------------------------------------------------------


def bad_changes(store: Any) -> dict[type[Exception], Any]:
    """Changes that fail, by the error they must fail with. The session has a summary of length 2, and one key."""
    return {
        VersionConflict: lambda: store.add_messages(SESSION, turn("bad", 0), expected_version=999),
        InvalidInput: lambda: store.add_summary(SESSION, Summary(text="s", embedding=[1.0, 2.0, 3.0], covers=(1, 1))),
        SnapshotNotFound: lambda: store.rollback_to_snapshot(SESSION, "no such"),
    }


def test_a_bad_change_does_not_fail_its_neighbours_in_other_threads(store: MemoryStore, disk: HeldDisk) -> None:
    store.add_summary(SESSION, Summary(text="s", embedding=[1.0, 2.0], covers=(1, 1)))
    with disk.held():
        first = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        calls: list[Callable[[], Any]] = []
        for bad in bad_changes(store).values():
            number = len(calls)
            calls += [lambda n=number: store.add_messages(SESSION, turn(f"good-{n}", 0)), bad]
        calls.append(lambda: store.add_messages(SESSION, turn("good-last", 0)))
        attempts = [Attempt(call) for call in calls]
        eventually(lambda: len(queue(store)) == len(calls), "all changes wait")
        before = disk.syncs
    first.outcome()
    outcomes = [attempt.outcome() for attempt in attempts]
    assert [type(outcome) for outcome in outcomes[1::2]] == list(bad_changes(store))
    assert disk.syncs - before == 1, "it was no batch: the test saw nothing"
    texts = [message.text for message in store.get_history(SESSION)]
    assert sorted(texts) == sorted(
        message.text for name in ("good-0", "good-2", "good-4", "good-last") for message in turn(name, 0)
    )
    assert store.verify().ok


def test_a_bad_change_does_not_fail_its_neighbours_in_other_tasks(path: Path, disk: HeldDisk) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), vfs=disk.name, timeout=50) as store:
            await store.add_summary(SESSION, Summary(text="s", embedding=[1.0, 2.0], covers=(1, 1)))
            goods = [store.add_messages(SESSION, turn(f"good-{n}", 0)) for n in range(20)]
            bads = [bad() for bad in bad_changes(store).values()]
            outcomes = await asyncio.gather(*goods[:10], *bads, *goods[10:], return_exceptions=True)
            assert [type(outcome) for outcome in outcomes[10:13]] == list(bad_changes(store))
            assert [type(outcome) for outcome in outcomes[:10] + outcomes[13:]] == [everturn.Receipt] * 20
            assert len(await store.get_history(SESSION)) == 40
            assert (await store.verify()).ok

    play(story)


def test_a_change_that_fails_half_way_leaves_nothing_behind(store: MemoryStore, disk: HeldDisk) -> None:
    """The first message of the turn is in, the second is larger than SQLite takes: in a batch, and alone."""
    writer_of(store).limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)

    def half_way() -> Any:
        return store.save_context(SESSION, "the small half", LARGE)

    with disk.held():
        first = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        goods = [lambda n=n: store.add_messages(SESSION, turn("good", n)) for n in range(2)]
        attempts: list[Attempt] = []
        for call in (goods[0], half_way, goods[1], half_way):
            attempts.append(Attempt(call))
            eventually(lambda: len(queue(store)) == len(attempts), "they wait, in this order")
    first.outcome()
    outcomes = [attempt.outcome() for attempt in attempts]
    alone = Attempt(half_way).outcome()
    for error in [*outcomes[1::2], alone]:
        assert isinstance(error, MemoryStoreBackendError)
        assert error.outcome == "not_written"
    check(store.get_history(SESSION), {"good": [0, 1]})
    assert store.info(SESSION).version == 2
    assert store.verify().ok


def test_a_full_disk_fails_only_what_does_not_fit(store: MemoryStore, disk: HeldDisk) -> None:
    limit_pages(store, 20)
    with disk.held():
        first = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        smalls = [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"small-{n}", 0))) for n in range(4)]
        eventually(lambda: len(queue(store)) == 4, "four changes that wait")
        large = Attempt(lambda: store.save_context(SESSION, LARGE, "too large"))
        eventually(lambda: len(queue(store)) == 5, "the large one waits")
        smalls += [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"small-{n}", 0))) for n in range(4, 8)]
        eventually(lambda: len(queue(store)) == 9, "all nine wait")
    first.outcome()
    error = large.outcome()
    assert isinstance(error, MemoryStoreBackendError)
    assert (error.outcome, "full" in str(error)) == ("not_written", True)
    for small in smalls:
        small.outcome().version  # noqa: B018 - it has one: it is a receipt
    check(store.get_history(SESSION), {f"small-{n}": [0] for n in range(8)})
    lift_limit(store)
    store.save_context(SESSION, LARGE, "it fits now")
    assert store.verify().ok


def test_a_full_disk_fails_only_the_task_that_does_not_fit(path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), timeout=50) as store:
            await store.add_messages("another session", turn("me", 0))
            limit_pages(store, 30)
            smalls = [store.add_messages(SESSION, turn(f"small-{n}", 0)) for n in range(20)]
            large = store.save_context(SESSION, LARGE, "too large")
            outcomes = await asyncio.gather(*smalls[:10], large, *smalls[10:], return_exceptions=True)
            error = outcomes.pop(10)
            assert isinstance(error, MemoryStoreBackendError)
            assert error.outcome == "not_written"
            assert [type(outcome) for outcome in outcomes] == [everturn.Receipt] * 20
            check(await store.get_history(SESSION), {f"small-{n}": [0] for n in range(20)})
            assert (await store.verify()).ok

    play(story)


def writer_of(store: Any) -> apsw.Connection:
    connection = store._operations.backend._database._writer
    assert connection is not None
    return connection


def limit_pages(store: Any, more: int) -> None:
    """Let the file grow by so many pages and no further."""
    connection = writer_of(store)
    connection.pragma("max_page_count", connection.pragma("page_count") + more)


def lift_limit(store: Any) -> None:
    writer_of(store).pragma("max_page_count", 1_000_000)


# --- time that runs out ---------------------------------------------------------------------------------------------


def test_a_thread_whose_time_is_up_in_the_queue_has_written_nothing(path: Path, disk: HeldDisk) -> None:
    with everturn.open(url(path), vfs=disk.name, timeout=0.3) as store:
        with disk.held():
            first = Attempt(lambda: store.add_messages(SESSION, turn("first", 0)))
            assert disk.reached.wait(60)
            late = [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"late-{n}", 0))) for n in range(3)]
            errors = [attempt.outcome() for attempt in late]
            assert [type(error) for error in errors] == [MemoryStoreBackendError] * 3
            assert {error.outcome for error in errors} == {"not_written"}
        assert first.outcome().version == 1, "it was under way, and its outcome is known"
        store.add_messages(SESSION, turn("first", 1))
        check(store.get_history(SESSION), {"first": [0, 1]})


def test_a_task_whose_time_is_up_in_the_queue_has_written_nothing(path: Path, disk: HeldDisk) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), vfs=disk.name, timeout=0.3) as store:
            with disk.held():
                first = asyncio.create_task(store.add_messages(SESSION, turn("first", 0)))
                await eventually_async(disk.reached.is_set, "the sync")
                late = [store.add_messages(SESSION, turn(f"late-{n}", 0)) for n in range(3)]
                errors = await asyncio.gather(*late, return_exceptions=True)
                assert [type(error) for error in errors] == [MemoryStoreBackendError] * 3
                assert {error.outcome for error in errors} == {"not_written"}
            assert (await first).version == 1
            await store.add_messages(SESSION, turn("first", 1))
            check(await store.get_history(SESSION), {"first": [0, 1]})

    play(story)
