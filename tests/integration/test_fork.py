"""A store across a fork: threads and tasks write all the time, parent and children go on, and no row is lost.

Each story runs in a process of its own, so that one that hangs is ended and shows where. `main` of a story is the
parent; the test reads the file when all have gone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

import everturn
from everturn import MemoryStore
from everturn.backends.sqlite import schema
from tests.integration.children import eventually, eventually_async, run
from tests.integration.turns import SESSION, Acknowledged, acknowledged, check_file, turn, url, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


# --- what the stories are made of ----------------------------------------------------------------------------------


@contextmanager
def writing_threads(store: MemoryStore, folder: str, family: str = "thread", count: int = 3) -> Iterator[list[int]]:
    """Threads that write until the end of the block. Yields how many turns each has written."""
    written = [0] * count
    stop = threading.Event()

    def write_on(index: int) -> None:
        record = Acknowledged(folder, f"{family}-{index}")
        while not stop.is_set():
            store.add_messages(SESSION, turn(f"{family}-{index}", written[index]))
            record(written[index])
            written[index] += 1
        record.close()

    threads = [threading.Thread(target=write_on, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        stop.set()
        for thread in threads:
            thread.join(50)
            assert not thread.is_alive(), "a writing thread hangs"


def go_on(written: list[int]) -> None:
    """Wait until every thread has written once more."""
    before = list(written)
    eventually(lambda: all(now > then for now, then in zip(written, before, strict=True)), "the threads go on")


def fork(body: Callable[[], None]) -> int:
    """Run the body in a child. Returns the child's id."""
    pid = os.fork()
    if pid == 0:
        _end(body)
    return pid


def _end(body: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        body()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


def wait_for(*pids: int) -> None:
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def database_handles(path: str) -> list[str]:
    """The open handles of this process that lead to the database or the files beside it."""
    found = []
    for handle in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the one that the list was read with
            found.append(str(handle.readlink()))
    return [name for name in found if name.startswith(path)]


# --- threads --------------------------------------------------------------------------------------------------------


def fork_while_threads_write(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    with writing_threads(store, folder) as written:
        pids = []
        for number in range(12):
            go_on(written)
            pids.append(fork(lambda number=number: write(store, folder, f"child-{number}", range(20))))
            if number % 3 == 0:
                store.get_history(SESSION, limit=1)
        go_on(written)
        wait_for(*pids)
        go_on(written)
    store.close()


def test_threads_that_write_all_the_time_and_the_children_go_on(path: Path, tmp_path: Path) -> None:
    run(fork_while_threads_write, path, tmp_path)
    check_file(path, tmp_path)
    record = acknowledged(tmp_path)
    assert {len(numbers) for writer, numbers in record.items() if writer.startswith("child")} == {20}
    assert len(record) == 12 + 3


_inherited: MemoryStore | None = None  # what a child of multiprocessing's fork context finds in its memory


def write_with_inherited(folder: str, writer: str) -> None:
    assert _inherited is not None
    write(_inherited, folder, writer, range(20))
    if writer == "child-0":
        _inherited.close()


def fork_by_multiprocessing(path: str, folder: str) -> None:
    global _inherited  # noqa: PLW0603 - inheriting it is the point
    _inherited = store = everturn.open(url(path), timeout=50)
    context = multiprocessing.get_context("fork")
    with writing_threads(store, folder) as written:
        children = [context.Process(target=write_with_inherited, args=(folder, f"child-{n}")) for n in range(6)]
        for child in children:
            go_on(written)
            child.start()
        for child in children:
            child.join(50)
            assert child.exitcode == 0
        go_on(written)
    store.close()


def test_multiprocessing_forks_a_store_in_use(path: Path, tmp_path: Path) -> None:
    run(fork_by_multiprocessing, path, tmp_path)
    check_file(path, tmp_path)
    assert len(acknowledged(tmp_path)) == 6 + 3


def fork_in_forks(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)

    def generation(family: str, depth: int) -> None:
        with writing_threads(store, folder, family, count=2) as written:
            go_on(written)
            pids = [fork(lambda to=family + letter: generation(to, depth - 1)) for letter in "ab" if depth]
            go_on(written)
            wait_for(*pids)
            go_on(written)

    generation("a", 2)
    store.close()


def test_children_fork_too(path: Path, tmp_path: Path) -> None:
    """Seven processes in three generations, each with threads that write."""
    run(fork_in_forks, path, tmp_path)
    check_file(path, tmp_path)
    families = {writer.partition("-")[0] for writer in acknowledged(tmp_path)}
    assert families == {"a", "aa", "aaa", "aab", "ab", "aba", "abb"}


def fork_in_two_threads(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    other = everturn.open(url(path + ".other"), timeout=50)
    failures: list[BaseException] = []

    def fork_on(index: int) -> None:
        try:
            for number in range(15):
                wait_for(fork(lambda number=number: write(store, folder, f"child-{index}-{number}", range(2))))
                other.add_messages(SESSION, turn(f"forker-{index}", number))
        except BaseException as exc:  # noqa: BLE001 - handed to the main thread
            failures.append(exc)

    with writing_threads(store, folder, count=2) as written:
        forkers = [threading.Thread(target=fork_on, args=(index,), daemon=True) for index in range(3)]
        for forker in forkers:
            forker.start()
        for forker in forkers:
            forker.join(50)
            assert not forker.is_alive(), "a forking thread hangs"
        go_on(written)
    assert not failures, failures
    store.close()
    other.close()


def test_threads_may_fork_at_the_same_time(path: Path, tmp_path: Path) -> None:
    run(fork_in_two_threads, path, tmp_path)
    check_file(path, tmp_path)
    assert len(acknowledged(tmp_path)) == 3 * 15 + 2


# --- who closes when ---------------------------------------------------------------------------------------------


def close_in_child(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    write(store, folder, "parent", range(5))

    def child() -> None:
        write(store, folder, "child", range(5))
        store.close()

    wait_for(fork(child))
    write(store, folder, "parent", range(5, 10))
    pid = fork(store.close)  # closed without ever being used
    write(store, folder, "parent", range(10, 15))
    wait_for(pid)
    write(store, folder, "parent", range(15, 20))
    os._exit(0)  # as a crash would: what counts is on disk by now


def test_a_child_that_closes_takes_nothing_from_the_parent(path: Path, tmp_path: Path) -> None:
    run(close_in_child, path, tmp_path)
    check_file(path, tmp_path)
    assert acknowledged(tmp_path) == {"parent": list(range(20)), "child": list(range(5))}


def close_in_parent(path: str, folder: str, own: str) -> None:
    """The parent closes while the child writes: with a lock table copied by the fork, the WAL would go with it."""
    store = everturn.open(url(path), timeout=50)
    write(store, folder, "parent", range(5))
    told, tell = os.pipe()
    heard, answer = os.pipe()

    def child() -> None:
        mine = everturn.open(url(path), timeout=50) if own == "own" else store
        write(mine, folder, "child", range(5))
        os.write(answer, b"x")
        os.read(told, 1)
        write(mine, folder, "child", range(5, 10))
        os._exit(0)  # without a close: as a kill would

    pid = fork(child)
    os.read(heard, 1)
    write(store, folder, "parent", range(5, 10))
    store.close()
    os.write(tell, b"x")
    wait_for(pid)


@pytest.mark.parametrize("own", ["inherited", "own"])
def test_a_parent_that_closes_takes_nothing_from_the_child(path: Path, tmp_path: Path, own: str) -> None:
    run(close_in_parent, path, tmp_path, own)
    check_file(path, tmp_path)
    assert acknowledged(tmp_path) == {"parent": list(range(10)), "child": list(range(10))}


def look_at_handles(path: str, folder: str) -> None:
    store = everturn.open(url(path), timeout=50)
    with writing_threads(store, folder) as written:
        go_on(written)
        store.get_history(SESSION)
        assert database_handles(path), "the parent has it open"

        def child() -> None:
            assert database_handles(path) == [], "a connection crossed the fork"
            write(store, folder, "child", range(2))
            assert database_handles(path)

        for _ in range(5):
            wait_for(fork(lambda: None))
        wait_for(fork(child))
        go_on(written)
    store.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at Linux's list of open handles")
def test_no_connection_crosses_a_fork(path: Path, tmp_path: Path) -> None:
    run(look_at_handles, path, tmp_path)
    check_file(path, tmp_path)


def fork_while_opening(path: str, folder: str) -> None:
    """Fork from one thread while another is in the middle of opening."""
    opening, forked = threading.Event(), threading.Event()
    migrate = schema.migrate

    def slow_migrate(*args: object, **kwargs: object) -> None:
        opening.set()
        forked.wait(0.5)  # a fork that does not wait for the opening comes now; one that does, after this
        migrate(*args, **kwargs)  # type: ignore[arg-type]

    schema.migrate = slow_migrate
    os.register_at_fork(after_in_parent=forked.set)
    stores: list[MemoryStore] = []
    opener = threading.Thread(target=lambda: stores.append(everturn.open(url(path), timeout=50)), daemon=True)
    opener.start()
    assert opening.wait(50)

    def child() -> None:
        assert database_handles(path) == [], "a connection crossed the fork"
        schema.migrate = migrate
        with everturn.open(url(path), timeout=50) as store:
            write(store, folder, "child", range(3))

    wait_for(fork(child))
    opener.join(50)
    write(stores[0], folder, "parent", range(3))
    stores[0].close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at Linux's list of open handles")
def test_a_store_that_is_being_opened_does_not_cross_a_fork(path: Path, tmp_path: Path) -> None:
    run(fork_while_opening, path, tmp_path)
    check_file(path, tmp_path)
    assert acknowledged(tmp_path) == {"parent": [0, 1, 2], "child": [0, 1, 2]}


# --- in memory, and with an event loop ------------------------------------------------------------------------------


def fork_memory(folder: str) -> None:
    store = everturn.open("sqlite://", timeout=50)
    with writing_threads(store, folder) as written:
        go_on(written)

        def child() -> None:
            before = store.get_history(SESSION)
            store.add_messages(SESSION, turn("child", 0))
            assert store.get_history(SESSION) == [*before, *turn("child", 0)], "someone else writes in the child"
            assert store.verify().ok
            store.close()

        pids = [fork(child) for _ in range(6)]
        go_on(written)
        wait_for(*pids)
        go_on(written)
    texts = [message.text for message in store.get_history(SESSION)]
    assert not [text for text in texts if text.startswith("child")], "a child wrote into its parent's memory"
    assert len(texts) == 2 * sum(written)
    assert store.verify().ok
    store.close()


def test_a_store_in_memory_becomes_two(tmp_path: Path) -> None:
    run(fork_memory, tmp_path)


def fork_with_a_loop(path: str, folder: str) -> None:
    async def story() -> None:
        store = await everturn.open_async(url(path), timeout=50)
        sync_store = everturn.open(url(path), timeout=50)
        written = [0] * 8
        stop = False

        async def write_on(index: int) -> None:
            record = Acknowledged(folder, f"task-{index}")
            while not stop:
                await store.add_messages(SESSION, turn(f"task-{index}", written[index]))
                record(written[index])
                written[index] += 1
                await store.get_history(SESSION, limit=2)
            record.close()

        async def more() -> None:
            before = list(written)
            await eventually_async(
                lambda: all(now > then for now, then in zip(written, before, strict=True)), "the tasks go on"
            )

        tasks = [asyncio.create_task(write_on(index)) for index in range(8)]
        pids = []
        for number in range(8):
            await more()
            pids.append(fork(lambda number=number: write(sync_store, folder, f"child-{number}", range(10))))
        await more()
        await asyncio.to_thread(wait_for, *pids)
        await more()
        stop = True
        await asyncio.gather(*tasks)
        await store.close()
        sync_store.close()

    asyncio.run(asyncio.wait_for(story(), 50))


def test_tasks_go_on_when_their_process_forks(path: Path, tmp_path: Path) -> None:
    run(fork_with_a_loop, path, tmp_path)
    check_file(path, tmp_path)
    record = acknowledged(tmp_path)
    assert len(record) == 8 + 8
    assert all(record.values()), "a task never got to write"


def open_anew_in_child(path: str, folder: str) -> None:
    """The child of a process with an async store opens one of its own, in a loop of its own."""

    async def append(store: everturn.AsyncMemoryStore, writer: str, numbers: range) -> None:
        record = Acknowledged(folder, writer)
        for number in numbers:
            await store.add_messages(SESSION, turn(writer, number))
            record(number)
        record.close()

    async def in_child() -> None:
        async with await everturn.open_async(url(path), timeout=50) as store:
            await append(store, "child", range(10))

    async def story() -> None:
        async with await everturn.open_async(url(path), timeout=50) as store:
            await append(store, "parent", range(5))
            pid = await asyncio.to_thread(fork, lambda: asyncio.run(in_child()))
            await append(store, "parent", range(5, 20))
            await asyncio.to_thread(wait_for, pid)
            await append(store, "parent", range(20, 25))

    asyncio.run(asyncio.wait_for(story(), 50))


def test_a_child_of_a_process_with_an_async_store_opens_its_own(path: Path, tmp_path: Path) -> None:
    run(open_anew_in_child, path, tmp_path)
    check_file(path, tmp_path)
    assert acknowledged(tmp_path) == {"parent": list(range(25)), "child": list(range(10))}
