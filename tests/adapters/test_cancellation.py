"""Adapters over a blocking store: a task that is cancelled, however often, returns when its change has settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, MemoryStore
from everturn.adapters._shared.sync_async import CallRunner, awaited_in_thread
from tests.integration.children import locked

Write = Callable[[], Awaitable[object]]
MESSAGES = [ChatMessage("user", "hello")]


def by_its_methods(store: MemoryStore) -> Write:
    awaited = awaited_in_thread(store)
    return lambda: awaited.add_messages("a", MESSAGES)


def by_a_coroutine(store: MemoryStore) -> Write:
    runner = CallRunner(store, "an adapter")
    return lambda: runner.run_async(runner.store.add_messages("a", MESSAGES))


def through_openai_agents(store: MemoryStore) -> Write:
    from everturn.adapters.openai_agents import EverturnSession

    session = EverturnSession("a", store)
    return lambda: session.add_items([{"role": "user", "content": "hello"}])


WAYS = [by_its_methods, by_a_coroutine, through_openai_agents]


async def cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_cancelled_again_still_waits_for_its_change(
    tmp_path: Path, way: Callable[[MemoryStore], Write], times: int
) -> None:
    path = tmp_path / "memory.db"

    async def story() -> None:
        with everturn.open(f"sqlite:///{path}", timeout=60) as store:
            write = way(store)
            store.save_snapshot("a")  # the file is made
            with locked(path) as lock:

                async def writing() -> object:
                    return await write()

                task = asyncio.create_task(writing())
                for _ in range(20):
                    await asyncio.sleep(0)
                for _ in range(times):
                    await cancel(task)
                    assert not task.done(), "it returned, and its change is still to land"
                lock.release()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store.info("a").messages == 1, "it returned before its change had settled"

    asyncio.run(story())


@pytest.mark.parametrize("way", [by_its_methods, by_a_coroutine])
def test_a_task_whose_loop_cancels_all_tasks_waits_for_its_change(
    tmp_path: Path, way: Callable[[MemoryStore], Write]
) -> None:
    """As asyncio.run does at its end, and at Ctrl-C: what waits for the thread must not be among the cancelled."""
    path = tmp_path / "memory.db"

    async def story() -> None:
        with everturn.open(f"sqlite:///{path}", timeout=60) as store:
            write = way(store)
            store.save_snapshot("a")
            with locked(path) as lock:

                async def writing() -> object:
                    return await write()

                task = asyncio.create_task(writing())
                for _ in range(20):
                    await asyncio.sleep(0)
                for other in asyncio.all_tasks() - {asyncio.current_task()}:
                    await cancel(other)
                assert not task.done()
                lock.release()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store.info("a").messages == 1

    asyncio.run(story())
