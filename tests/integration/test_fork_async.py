"""A store across an `os.fork`, in memory and with an event loop: parent and child go on, each with its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import everturn
from tests.integration.children import eventually_async, run
from tests.integration.os_forks import fork, go_on, wait_for, writing_threads
from tests.integration.turns import SESSION, Acknowledged, acknowledged, check_file, turn, url, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


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
