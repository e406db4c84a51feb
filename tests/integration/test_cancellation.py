"""Cancelled tasks: before it was sent, nothing is written; once sent, it has settled; and nothing lands afterwards."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import AsyncMemoryStore, InvalidInput
from tests.integration.attempts import play
from tests.integration.children import eventually_async, locked
from tests.integration.disks import HeldDisk
from tests.integration.turns import SESSION, check, turn, url
from tests.tiers import first


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[HeldDisk]:
    with HeldDisk(request.node.name) as disk:
        yield disk


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as Python lets them, so that a race has many chances."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@asynccontextmanager
async def opened(path: Path, timeout: float = 30, **options: Any) -> AsyncIterator[AsyncMemoryStore]:  # noqa: ASYNC109
    async with await everturn.open_async(url(path), timeout=timeout, **options) as store:
        yield store


async def is_cancelled(task: asyncio.Task[Any]) -> bool:
    """Wait for the task. Whether it was cancelled, rather than done."""
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def written(store: AsyncMemoryStore, session: str) -> list[str]:
    return [message.text for message in await store.get_history(session)]


# --- at random ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager_threads")
def test_a_thousand_cancels_at_random_moments(path: Path) -> None:
    """Ten tasks in parallel cancel a hundred changes each, and read at once what became of each."""
    cancelled: dict[str, list[str]] = {}
    done: set[str] = set()

    async def cancel_often(store: AsyncMemoryStore, worker: int) -> None:
        dice = random.Random(worker)
        for number in range(100):
            session = f"{worker}-{number}"
            task = asyncio.create_task(store.add_messages(session, turn("me", number)))
            for _ in range(dice.choice([0, 1, 2, 5, 20, 60])):
                await asyncio.sleep(0)
            task.cancel()
            if await is_cancelled(task):
                cancelled[session] = await written(store, session)
            else:
                done.add(session)

    async def story() -> None:
        async with opened(path) as store:
            await asyncio.gather(*(cancel_often(store, worker) for worker in range(10)))
            await store.add_messages(SESSION, turn("after", 0))  # behind all of them

    play(story)
    with everturn.open(url(path)) as store:
        now = {session: [message.text for message in store.get_history(session)] for session in {*cancelled, *done}}
        assert store.verify().ok
    assert {session: now[session] for session in cancelled} == cancelled, "something landed after the caller was told"
    for session in done:
        assert len(now[session]) == 2, "acknowledged and lost"
    assert {len(texts) for texts in cancelled.values()} <= {0, 2}, "a torn turn"
    assert [] in cancelled.values(), "none was cancelled in time: the test saw nothing"
    assert done or [texts for texts in cancelled.values() if texts], "none was sent: the test saw nothing"


@pytest.mark.usefixtures("eager_threads")
def test_cancels_at_random_moments_leave_the_others_alone(path: Path) -> None:
    """Of many tasks in one queue some are cancelled; all others are written, in order, and the queue goes on."""
    record: dict[str, list[int]] = {}

    async def story() -> None:
        dice = random.Random(1)
        async with opened(path) as store:
            for round_ in range(60):
                names = [f"{round_}-{number}" for number in range(12)]
                tasks = {name: asyncio.create_task(store.add_messages(SESSION, turn(name, 0))) for name in names}
                for _ in range(dice.randrange(30)):
                    await asyncio.sleep(0)
                for name in dice.sample(names, 5):
                    tasks[name].cancel()
                    await asyncio.sleep(0)
                told = {name: await is_cancelled(task) for name, task in tasks.items()}
                present = {message.text.split(" ")[0] for message in await store.get_history(SESSION)}
                record.update({name: [0] for name in tasks if not told[name] or name in present})
            check(await store.get_history(SESSION), record)

    play(story)
    assert 60 * 7 <= len(record) <= 60 * 12
    with everturn.open(url(path)) as store:
        check(store.get_history(SESSION), record)


class Turnstile:
    """The lock of the queue of changes; a thread that has just left it first lets the event loop do something."""

    def __init__(self, loop: asyncio.AbstractEventLoop, between: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._between = between

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.get_ident() != self._loop_thread:
            done = threading.Event()
            self._loop.call_soon_threadsafe(self._let_the_loop_run, 5, done)
            done.wait(60)

    def _let_the_loop_run(self, rounds: int, done: threading.Event) -> None:
        if rounds == 5:
            self._between()
        if rounds:
            self._loop.call_soon(self._let_the_loop_run, rounds - 1, done)
        else:
            done.set()


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_a_cancel_between_any_two_steps_of_the_writer(path: Path, seed: int) -> None:
    """Whenever the writer has looked at its queue, one of the first in it may be cancelled before it goes on."""
    dice = random.Random(seed)
    under_way: dict[str, asyncio.Task[Any]] = {}
    record: dict[str, list[int]] = {f"writer-{number}": [] for number in range(8)}
    cancelled: list[tuple[str, int]] = []

    def cancel_one() -> None:
        pending = [task for task in under_way.values() if not task.done()]
        if pending and dice.random() < 0.3:
            dice.choice(pending[:2]).cancel()

    async def write_on(store: AsyncMemoryStore, writer: str) -> None:
        for number in range(15):
            under_way[writer] = asyncio.create_task(store.add_messages(SESSION, turn(writer, number)))
            if await is_cancelled(under_way[writer]):
                cancelled.append((writer, number))
                if turn(writer, number)[0] in await store.get_history(SESSION):
                    record[writer].append(number)
            else:
                record[writer].append(number)

    async def story() -> None:
        async with opened(path, timeout=5) as store:
            store._operations.backend._commits._mutex = Turnstile(asyncio.get_running_loop(), cancel_one)
            await asyncio.gather(*(write_on(store, writer) for writer in record))
            check(await store.get_history(SESSION), record)

    play(story)
    assert len(cancelled) > 5, "hardly one was cancelled: the test saw nothing"


# --- one moment at a time ------------------------------------------------------------------------------------------


def test_a_task_cancelled_before_it_began_writes_nothing(path: Path) -> None:
    async def story() -> None:
        async with opened(path) as store:
            task = asyncio.create_task(store.add_messages(SESSION, turn("me", 0)))
            task.cancel()
            assert await is_cancelled(task)
            await store.add_messages(SESSION, turn("me", 1))
            check(await store.get_history(SESSION), {"me": [1]})

    play(story)


def test_what_is_cancelled_before_it_was_sent_is_never_written(path: Path) -> None:
    """Another process holds the lock, so nothing can have been sent; all are cancelled, the first of the queue too."""

    async def story() -> None:
        async with opened(path) as store:
            with locked(path) as lock:
                waiting = store._operations.backend._commits._queue
                tasks = [asyncio.create_task(store.add_messages(SESSION, turn("me", n))) for n in range(10)]
                await eventually_async(lambda: len(waiting) == 10, "ten changes that wait")
                for task in tasks:
                    task.cancel()
                assert [await is_cancelled(task) for task in tasks] == [True] * 10
                assert not waiting
                lock.release()
            await store.add_messages(SESSION, turn("me", 99))
            check(await store.get_history(SESSION), {"me": [99]})

    play(story)
    with locked(path):
        pass  # and the write lock is free


@pytest.mark.parametrize("position", [0, 4, 9])
def test_a_cancel_in_the_queue_takes_out_that_one_only(path: Path, position: int) -> None:
    async def story() -> None:
        async with opened(path) as store:
            with locked(path) as lock:
                waiting = store._operations.backend._commits._queue
                tasks = [asyncio.create_task(store.add_messages(SESSION, turn("me", n))) for n in range(10)]
                await eventually_async(lambda: len(waiting) == 10, "ten changes that wait")
                tasks[position].cancel()
                assert await is_cancelled(tasks[position])
                lock.release()
                assert [await is_cancelled(task) for task in tasks].count(True) == 1
            check(await store.get_history(SESSION), {"me": [n for n in range(10) if n != position]})

    play(story)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_what_was_sent_has_settled_when_the_caller_hears_of_the_cancel(path: Path, disk: HeldDisk, times: int) -> None:
    async def story() -> None:
        async with opened(path, vfs=disk.name) as store:
            with disk.held():
                task = asyncio.create_task(store.add_messages(SESSION, turn("me", 0)))
                await eventually_async(disk.reached.is_set, "the sync")
                for _ in range(times):
                    task.cancel()
                    for _ in range(50):
                        await asyncio.sleep(0)
                    assert not task.done(), "told before the outcome was known"
                assert await written(store, SESSION) == []
                disk.let_go()
                assert await is_cancelled(task)
            check(await store.get_history(SESSION), {"me": [0]})

    play(story)


def test_a_time_out_of_asyncio_waits_for_the_outcome_of_what_was_sent(path: Path, disk: HeldDisk) -> None:
    async def story() -> None:
        async with opened(path, vfs=disk.name) as store:
            scope = asyncio.timeout(None)

            async def limited() -> None:
                async with scope:
                    await store.add_messages(SESSION, turn("me", 0))

            with disk.held():
                task = asyncio.create_task(limited())
                await eventually_async(disk.reached.is_set, "the sync")
                scope.reschedule(asyncio.get_running_loop().time())
                await eventually_async(scope.expired, "the time-out")
                for _ in range(50):
                    await asyncio.sleep(0)
                assert not task.done()
                disk.let_go()
                with pytest.raises(TimeoutError):
                    await task
            check(await store.get_history(SESSION), {"me": [0]})

    play(story)


def test_a_time_out_of_asyncio_withdraws_what_was_not_sent(path: Path) -> None:
    async def story() -> None:
        async with opened(path) as store:
            with locked(path):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await store.add_messages(SESSION, turn("me", 0))
                assert await written(store, SESSION) == []
            await store.add_messages(SESSION, turn("me", 1))
            check(await store.get_history(SESSION), {"me": [1]})

    play(story)


def test_a_failed_task_group_cancels_its_changes_cleanly(path: Path) -> None:
    async def story() -> None:
        async with opened(path) as store:

            async def fail_together(session: str) -> None:
                async with asyncio.TaskGroup() as group:
                    for number in range(5):
                        group.create_task(store.add_messages(session, turn("me", number)))
                    group.create_task(store.rollback_to_snapshot(session, "no such"))

            for round_ in range(30):
                with pytest.raises(ExceptionGroup):
                    await fail_together(f"session {round_}")
                told = await written(store, f"session {round_}")
                await store.add_messages(SESSION, turn("me", round_))
                assert await written(store, f"session {round_}") == told, "something landed afterwards"
            check(await store.get_history(SESSION), {"me": list(range(30))})

    play(story)


def test_a_cancelled_read_leaves_the_store_in_order(path: Path) -> None:
    async def story() -> None:
        dice = random.Random(3)
        async with opened(path) as store:
            await store.add_messages(SESSION, turn("me", 0))
            for _ in range(200):
                task = asyncio.create_task(store.get_history(SESSION))
                for _ in range(dice.randrange(10)):
                    await asyncio.sleep(0)
                task.cancel()
                await is_cancelled(task)
            check(await store.get_history(SESSION), {"me": [0]})

    play(story)


def test_every_kind_of_change_can_be_cancelled(path: Path) -> None:
    """A cancelled change of any kind has taken its session one version on, or left it as it was, and that is final."""

    async def story() -> None:
        dice = random.Random(5)
        async with opened(path) as store:
            await store.add_messages(SESSION, turn("me", 0))
            snapshot = await store.save_snapshot(SESSION)
            kinds: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: store.save_snapshot(SESSION),
                lambda: store.rollback_to_snapshot(SESSION, snapshot),
                lambda: store.undo(SESSION),
                lambda: store.clear(SESSION),
                lambda: store.trim(SESSION, max_messages=2),
                lambda: store.replace(SESSION, turn("other", 0)),
                lambda: store.set_ttl(SESSION, 1000),
                lambda: store.add_messages(SESSION, turn("other", 1)),
            ]
            for _ in range(200):
                before = (await store.info(SESSION)).version
                task = asyncio.create_task(dice.choice(kinds)())
                for _ in range(dice.randrange(40)):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await is_cancelled(task)
                except everturn.MemoryStoreError:
                    pass  # nothing to undo
                after = await store.state(SESSION)
                assert after.version in (before, before + 1)
                await store.add_messages("elsewhere", turn("me", 0))  # behind whatever may still be on its way
                assert await store.state(SESSION) == after, "something landed afterwards"
            assert (await store.verify()).ok

    play(story)


# --- another loop --------------------------------------------------------------------------------------------------


def test_a_store_of_another_event_loop_is_refused(path: Path) -> None:
    stores: list[AsyncMemoryStore] = []

    async def use() -> None:
        with pytest.raises(InvalidInput, match="belongs to the event loop it was opened in"):
            await stores[0].add_messages(SESSION, turn("me", 0))
        with pytest.raises(InvalidInput, match="event loop"):
            await stores[0].get_history(SESSION)

    async def story() -> None:
        async with opened(path) as store:
            stores.append(store)
            await asyncio.to_thread(asyncio.run, use())
            check(await store.get_history(SESSION), {})

    play(story)
