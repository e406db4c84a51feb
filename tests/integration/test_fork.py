"""A store across an `os.fork`: threads and tasks write all the time, parent and children go on, and no row is lost.

Each story runs in a process of its own, so that one that hangs is ended and shows where. `main` of a story is the
parent; the test reads the file when all have gone.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

import pytest

import everturn
from everturn import MemoryStore
from everturn.backends.sqlite import schema
from tests.integration.children import run
from tests.integration.os_forks import database_handles, fork, go_on, wait_for, writing_threads
from tests.integration.turns import SESSION, acknowledged, check_file, turn, url, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


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
