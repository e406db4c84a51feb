"""Changes that wait at the same time share a commit; each still has an outcome, and an error, of its own."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import (
    InvalidInput,
    MemoryStore,
    MemoryStoreBackendError,
    SessionNotFound,
    SnapshotNotFound,
    Summary,
    VersionConflict,
)
from everturn.backends.sqlite.transaction import Stage
from tests.integration.children import eventually, eventually_async, locked, run
from tests.integration.disks import HeldDisk
from tests.integration.turns import (
    SESSION,
    Acknowledged,
    acknowledged,
    check,
    check_file,
    check_turns,
    numbers_by_writer,
    turn,
    url,
    write,
)
from tests.tiers import first

LARGE = "x" * 400_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[HeldDisk]:
    with HeldDisk(request.node.name, seconds=0.002) as disk:
        yield disk


@pytest.fixture
def store(path: Path, disk: HeldDisk) -> Iterator[MemoryStore]:
    with everturn.open(url(path), vfs=disk.name, timeout=50) as store:
        store.add_messages("another session", turn("me", 0))  # the connection is open, the file has its tables
        yield store


class Attempt(threading.Thread):
    """A call in a thread of its own, and what became of it: a result or an error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as exc:  # noqa: BLE001 - it is what the test is about
            self.error = exc

    def outcome(self) -> Any:
        """The result or the error."""
        self.join(60)
        assert not self.is_alive(), "the call hangs"
        return self.result if self.error is None else self.error


def queue(store: Any) -> list[Any]:
    """The changes that wait; those that run stay in the queue until they are settled."""
    return [job for job in tuple(store._operations.backend._commits._queue) if job.stage is Stage.WAITING]


def play(story: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


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


# --- looks: on the connection that writes, if it is free -------------------------------------------------------------


def test_a_look_does_not_wait_for_a_change_and_sees_what_was_before_it(store: MemoryStore, disk: HeldDisk) -> None:
    with disk.held():
        change = Attempt(lambda: store.add_messages("another session", turn("me", 1)))
        assert disk.reached.wait(60)
        assert store.info("another session").version == 1
        with pytest.raises(SessionNotFound):
            store.info(SESSION)
        assert change.is_alive()
    assert change.outcome().version == 2
    assert store.info("another session").version == 2


def test_a_change_that_comes_during_a_look_waits_for_it(store: MemoryStore) -> None:
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    begun, go_on = threading.Event(), threading.Event()
    look = Attempt(lambda: commits.look(lambda _: (begun.set(), go_on.wait(60)), 60 + time.monotonic()))
    assert begun.wait(60)
    changes = [Attempt(lambda n=n: store.add_messages(SESSION, turn(f"thread-{n}", 0))) for n in range(3)]
    eventually(lambda: len(queue(store)) == 3, "three changes that wait")
    assert commits.look(lambda _: "seen", 60 + time.monotonic()) is None
    assert store.info("another session").version == 1
    go_on.set()
    assert look.outcome() is not None
    assert {change.outcome().version for change in changes} == {1, 2, 3}
    assert store.info(SESSION).version == 3


def test_nobody_leads_until_a_look_has_passed_the_lead_on(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would settle what is running, and promote what is done, which is then run again."""
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    settle, changes, ran = commits._settle, list[Attempt](), list[str]()

    def and_meanwhile() -> None:
        if not changes:  # the look's
            changes.append(Attempt(lambda: commits.run(lambda _: ran.append("change"), 60 + time.monotonic())))
            eventually(lambda: len(queue(store)) == 1, "a change that waits")
            time.sleep(0.2)  # long enough for it to see that nobody leads, and to lead
            assert not ran
        settle()

    monkeypatch.setattr(commits, "_settle", and_meanwhile)
    assert commits.look(lambda _: "seen", 60 + time.monotonic()) == "seen"
    assert changes[0].outcome() is None
    assert commits.run(lambda _: ran.append("another"), 60 + time.monotonic()) is None
    assert ran == ["change", "another"]


def test_a_look_by_whoever_leads_does_not_wait_for_itself(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler may."""
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    settle, seen = commits._settle, list[Any]()

    def and_look() -> None:
        settle()
        seen.append(commits.look(lambda _: "seen", 60 + time.monotonic()))

    monkeypatch.setattr(commits, "_settle", and_look)
    assert Attempt(lambda: store.add_messages("another session", turn("me", 1))).outcome().version == 2
    assert seen == [None]


def test_a_look_does_not_see_what_an_interrupt_left_behind(store: MemoryStore) -> None:
    writer = store._operations.backend._database._writer  # type: ignore[attr-defined]  # SQLite's
    writer.execute("BEGIN IMMEDIATE; UPDATE sessions SET version = 7")
    assert store.info("another session").version == 1
    assert store.add_messages("another session", turn("me", 1)).version == 2


def test_a_look_that_fails_is_an_honest_error_and_leaves_the_lead(store: MemoryStore) -> None:
    commits: Any = store._operations.backend._commits  # type: ignore[attr-defined]  # SQLite's
    with pytest.raises(MemoryStoreBackendError, match="no such table") as raised:
        commits.look(lambda db: db.execute("SELECT * FROM nowhere"), 60 + time.monotonic())
    assert raised.value.outcome == "not_written"
    assert store.add_messages("another session", turn("me", 1)).version == 2


# --- Ctrl-C: signals reach the main thread, so each story is a process -----------------------------------------------


def interrupt_me(when: Callable[[], bool], what: str) -> threading.Thread:
    """Send this process Ctrl-C when the condition holds."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it

    def interrupt() -> None:
        eventually(when, what)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    return thread


def interrupt_the_leader(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    with locked(Path(path)) as lock:
        others: list[Attempt] = []

        def all_wait() -> bool:
            if len(queue(store)) == 1:  # the main thread's
                others.extend(Attempt(lambda n=n: write(store, folder, f"other-{n}", range(5))) for n in range(3))
            return len(queue(store)) == 4

        interrupt_me(all_wait, "three behind the leader")
        with pytest.raises(KeyboardInterrupt):
            store.add_messages(SESSION, turn("interrupted", 0))
        lock.release()
        assert [other.outcome() for other in others] == [None] * 3
    write(store, folder, "main", range(5))
    store.close()


def interrupt_a_follower(path: str, folder: str) -> None:
    with HeldDisk("held") as disk, everturn.open(url(path), vfs=disk.name, timeout=50) as store:
        with disk.held():
            leader = Attempt(lambda: write(store, folder, "leader", range(5)))
            assert disk.reached.wait(50)
            interrupt_me(lambda: len(queue(store)) == 1, "a follower")
            with pytest.raises(KeyboardInterrupt):
                store.add_messages(SESSION, turn("interrupted", 0))
            assert len(queue(store)) == 0
        assert leader.outcome() is None
        write(store, folder, "main", range(5))


@pytest.mark.parametrize("story", [interrupt_the_leader, interrupt_a_follower])
def test_an_interrupted_change_is_not_written_and_the_others_go_on(
    path: Path, tmp_path: Path, story: Callable[[str, str], None]
) -> None:
    run(story, path, tmp_path)
    check_file(path, tmp_path)
    assert {tuple(numbers) for numbers in acknowledged(tmp_path).values()} == {tuple(range(5))}


def interrupt_at_random(path: str, folder: str, seed: str) -> None:
    """A timer interrupts the main thread over and over while it writes and looks, and three threads write."""
    dice = random.Random(int(seed))
    sys.setswitchinterval(1e-5)
    store = everturn.open(url(path), timeout=50)
    stop = threading.Event()
    written = [0, 0, 0]
    armed = False

    def write_on(index: int) -> None:
        record = Acknowledged(folder, f"thread-{index}")
        while not stop.is_set():
            try:
                store.add_messages(SESSION, turn(f"thread-{index}", written[index]))
            except MemoryStoreBackendError as exc:
                if exc.outcome != "unknown":
                    raise
                present = turn(f"thread-{index}", written[index])[0] in store.get_history(SESSION, limit=200)
                if not present:
                    continue  # it was interrupted along with its leader; it may be sent again
            record(written[index])
            written[index] += 1

    def interrupt(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    def went_on(before: list[int]) -> bool:
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        return all(now > then for now, then in zip(written, before, strict=True))

    signal.signal(signal.SIGALRM, interrupt)
    threads = [Attempt(lambda index=index: write_on(index)) for index in range(3)]
    record = Acknowledged(folder, "main")
    interrupted: list[int] = []
    for number in range(400):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00001, 0.003))
            store.add_messages(SESSION, turn("main", number))
            store.info(SESSION)
            armed = False
        except (KeyboardInterrupt, RuntimeError):  # threading.Event.wait turns an untimely one into a RuntimeError
            armed = False
            interrupted.append(number)
        else:
            record(number)
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        if number % 20 == 0:
            before = list(written)
            eventually(lambda before=before: went_on(before), "the others go on")
    stop.set()
    assert [thread.outcome() for thread in threads] == [None] * 3
    store.close()
    print(*interrupted)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_interrupts_at_random_moments_wedge_nobody(path: Path, tmp_path: Path, seed: int) -> None:
    interrupted = {int(number) for number in run(interrupt_at_random, path, tmp_path, seed).split()}
    assert len(interrupted) > 20, "hardly any interrupt: the test saw nothing"
    record = acknowledged(tmp_path)
    with everturn.open(url(path)) as store:
        history = store.get_history(SESSION)
        there = set(numbers_by_writer(check_turns(history))["main"])
        # An interrupted change may have been under way in another thread's batch: it is there whole, or not at all.
        assert set(record["main"]) <= there <= set(record["main"]) | interrupted
        check(history, record | {"main": sorted(there)})
        assert store.verify().ok


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
