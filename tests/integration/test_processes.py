"""Many processes, one file: what is acknowledged in one is there for all, whole, once and in order."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from tests.integration.children import children, eventually, eventually_async, locked, run
from tests.integration.turns import (
    SESSION,
    acknowledged,
    check,
    check_file,
    check_turns,
    turn,
    url,
    write,
    write_turns,
)
from tests.store.speech import gives_up_after
from tests.tiers import first

WRITERS, TURNS = 6, 100
LENGTHS = 20  # of a session, as a reader saw it grow


# --- the incident ----------------------------------------------------------------------------------------------

_SAVE = """
import everturn, sys
store = everturn.open("sqlite:///" + sys.argv[1])
store.save_context("customer", "My order is 1234.", "Thank you.")
print(store.save_snapshot("customer", "order known").id)
store.save_context("customer", "No, forget it.", "Forgotten.")
store.add_tool_call("customer", everturn.ToolCall("cancel", {"order": 1234}))
store.close()
"""

_ROLL_BACK = """
import everturn, sys
store = everturn.open("sqlite:///" + sys.argv[1])
print([snapshot.id for snapshot in store.list_snapshots("customer")] == [sys.argv[2]])
store.rollback_to_snapshot("customer", sys.argv[2])
print([message.text for message in store.get_history("customer")] == ["My order is 1234.", "Thank you."])
print(store.get_tool_calls("customer") == [])
store.save_context("customer", sys.argv[3], "I see.")
print(len(store.get_history("customer")) == 4)
"""


def test_a_snapshot_outlives_the_rollbacks_of_other_processes(path: Path) -> None:
    """Process A saves and exits, B rolls back and exits, C finds the snapshot and rolls back again. (B and C do not
    even close the store.)"""
    snapshot = run(_SAVE, path).strip()
    for process in "BCD":
        assert run(_ROLL_BACK, path, snapshot, process).split() == ["True"] * 4
    with everturn.open(url(path)) as store:
        assert [kept.id for kept in store.list_snapshots("customer")] == [snapshot]
        assert store.get_history("customer")[2].text == "D"
        assert store.verify().ok


# --- many writers ----------------------------------------------------------------------------------------------


def names(count: int = WRITERS) -> list[str]:
    return [f"writer-{number}" for number in range(count)]


def check_all(path: Path, folder: Path) -> None:
    check_file(path, folder)
    assert acknowledged(folder) == {name: list(range(TURNS)) for name in names()}, "a writer gave up"


def test_processes_by_spawn_lose_double_tear_and_reorder_nothing(path: Path, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [
        spawn.Process(target=write_turns, args=(str(path), str(tmp_path), name, str(TURNS)), daemon=True)
        for name in names()
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
        writer.close()
    check_all(path, tmp_path)


def test_processes_by_plain_python_lose_double_tear_and_reorder_nothing(path: Path, tmp_path: Path) -> None:
    with children(*((write_turns, path, tmp_path, name, TURNS) for name in names())) as writers:
        for writer in writers:
            writer.finished()
    check_all(path, tmp_path)


def fork_writers(path: str, folder: str) -> None:
    """Open the store, use it, and fork: the children write with the store they inherited."""
    store = everturn.open(url(path), timeout=50)
    write(store, folder, "parent", range(3))
    store.get_history(SESSION)
    pids = []
    for name in names():
        pid = os.fork()
        if pid == 0:
            write(store, folder, name, range(TURNS))
            os._exit(0)
        pids.append(pid)
    write(store, folder, "parent", range(3, TURNS))
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * WRITERS
    write(store, folder, "parent", [TURNS])
    store.close()


def test_processes_by_fork_of_an_open_store_lose_double_tear_and_reorder_nothing(path: Path, tmp_path: Path) -> None:
    run(fork_writers, path, tmp_path)
    check_file(path, tmp_path)
    assert {len(numbers) for numbers in acknowledged(tmp_path).values()} == {TURNS, TURNS + 1}


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_a_writer_killed_at_a_random_moment_takes_nothing_with_it(path: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    count, victim = 50, dice.randrange(WRITERS)
    name = names()[victim]
    counts = {name: 1_000_000}  # it never ends by itself
    with children(*((write_turns, path, tmp_path, name, counts.get(name, count)) for name in names())) as writers:
        after = dice.randrange(count - 10)
        eventually(lambda: len(acknowledged(tmp_path).get(name, [])) >= after, "the victim's turns")
        for _ in range(dice.randrange(2000)):
            pass  # some part of a turn
        writers[victim].send_signal(signal.SIGKILL)
        for writer in writers:
            if writer is not writers[victim]:
                writer.finished()
        writers[victim].wait()
    check_file(path, tmp_path, killed=[name])
    others = {writer: numbers for writer, numbers in acknowledged(tmp_path).items() if writer != name}
    assert others == {writer: list(range(count)) for writer in names() if writer != name}


def read_on(path: str) -> None:
    """Read until told to stop: each history is made of whole turns, and begins with the one before.

    Says so when it has seen the session grow `LENGTHS` times.
    """
    seen: list[ChatMessage] = []
    lengths = set()
    told = Thread(target=sys.stdin.readline, daemon=True)
    told.start()
    with everturn.open(url(path), timeout=50) as store:
        while True:
            last = not told.is_alive()
            history = store.get_history(SESSION)
            check_turns(history)
            assert history[: len(seen)] == seen, "an earlier history is not the beginning of a later one"
            seen = history
            if len(seen) not in lengths:
                lengths.add(len(seen))
                if len(lengths) == LENGTHS:
                    print("grown", flush=True)
            if last:
                break
    print(len(seen))


def test_a_reader_sees_whole_turns_and_never_goes_back(path: Path, tmp_path: Path) -> None:
    everturn.open(url(path)).close()
    endless = str(1_000_000)  # the writers go on until the reader has seen enough
    with children((read_on, path), *((write_turns, path, tmp_path, name, endless) for name in names(4))) as started:
        reader, *writers = started
        assert reader.line() == "grown"
        for writer in writers:
            writer.kill()
            writer.wait()
        last = int(reader.finished("stop\n"))
    check_file(path, tmp_path, killed=names(4))
    with everturn.open(url(path)) as store:
        assert last == len(store.get_history(SESSION))


def open_and_write(path: str, folder: str, writer: str) -> None:
    """Say that all is imported, wait for the start, then open a path where there is nothing yet."""
    everturn.open("sqlite://").close()
    print("ready", flush=True)
    sys.stdin.readline()
    write_turns(path, folder, writer, "2")


@pytest.mark.parametrize("round_", first(1, range(3)))
def test_ten_processes_open_a_new_path_at_once(path: Path, tmp_path: Path, round_: int) -> None:
    with children(*((open_and_write, path, tmp_path, name) for name in names(10))) as openers:
        for opener in openers:
            assert opener.line() == "ready"
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write("go\n")
            opener.stdin.flush()
        for opener in openers:
            opener.finished()
    check_file(path, tmp_path)
    assert acknowledged(tmp_path) == {name: [0, 1] for name in names(10)}


# --- a lock that another process holds -----------------------------------------------------------------------------


def test_a_locked_database_is_waited_for(path: Path, tmp_path: Path) -> None:
    with everturn.open(url(path), timeout=50) as store:
        threads = [Thread(target=write, args=(store, tmp_path, name, range(2)), daemon=True) for name in names(3)]
        with locked(path) as lock:
            for thread in threads:
                thread.start()
            waiting = store._operations.backend._commits._queue
            eventually(lambda: len(waiting) == 3, "three changes that wait")
            lock.release()
            for thread in threads:
                thread.join(60)
        check(store.get_history(SESSION), {name: [0, 1] for name in names(3)})


def test_a_lock_held_past_the_time_out_is_an_honest_error(path: Path) -> None:
    timeout = 0.2
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
        with locked(path):
            for _ in range(3):
                began = time.monotonic()
                with gives_up_after(timeout, store), pytest.raises(MemoryStoreBackendError, match="locked") as caught:
                    store.add_messages(SESSION, turn("me", 99))
                assert caught.value.outcome == "not_written"
                assert time.monotonic() >= began + timeout, "it gave up before its time"
                assert len(store.get_history(SESSION)) == 2, "a lock on writing is none on reading"
        store.add_messages(SESSION, turn("me", 1))
        check(store.get_history(SESSION), {"me": [0, 1]})


def test_threads_behind_a_lock_each_get_their_time_and_an_honest_error(path: Path) -> None:
    with everturn.open(url(path)) as store:
        errors: list[MemoryStoreBackendError] = []

        def attempt(number: int) -> None:
            try:
                store.add_messages(SESSION, turn("late", number))
            except MemoryStoreBackendError as exc:
                errors.append(exc)

        threads = [Thread(target=attempt, args=(number,), daemon=True) for number in range(8)]
        with locked(path), gives_up_after(0.3, store):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert [error.outcome for error in errors] == ["not_written"] * 8
        store.add_messages(SESSION, turn("me", 0))
        check(store.get_history(SESSION), {"me": [0]})


@pytest.mark.parametrize("tasks", [1, 8])
def test_a_lock_held_past_the_time_out_is_an_honest_error_for_tasks_too(path: Path, tasks: int) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path)) as store:
            await store.add_messages(SESSION, turn("me", 0))
            with locked(path), gives_up_after(0.2, store):
                for _ in range(3):
                    attempts = [store.add_messages(SESSION, turn("late", number)) for number in range(tasks)]
                    errors = await asyncio.gather(*attempts, return_exceptions=True)
                    assert [type(error) for error in errors] == [MemoryStoreBackendError] * tasks
                    assert [error.outcome for error in errors] == ["not_written"] * tasks
            await store.add_messages(SESSION, turn("me", 1))
            check(await store.get_history(SESSION), {"me": [0, 1]})

    asyncio.run(asyncio.wait_for(story(), 60))


def test_tasks_wait_for_a_lock(path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(url(path), timeout=50) as store:
            with locked(path) as lock:
                changes = [asyncio.create_task(store.add_messages(SESSION, turn("me", n))) for n in range(20)]
                waiting = store._operations.backend._commits._queue
                await eventually_async(lambda: len(waiting) == 20, "twenty changes that wait")
                lock.release()
                await asyncio.gather(*changes)
            check(await store.get_history(SESSION), {"me": list(range(20))})

    asyncio.run(asyncio.wait_for(story(), 60))
