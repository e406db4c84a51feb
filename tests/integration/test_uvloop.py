"""In uvloop's event loop, which uvicorn brings along: transports, time-outs and cancellation are its own there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvloop

import everturn
from everturn import AsyncMemoryStore, MemoryStoreBackendError
from everturn.testing.faults.proxy import FaultProxy
from tests.integration.writers import turn
from tests.store.places import Servers

BACKENDS = ["sqlite", "valkey", "postgres"]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/memory.db"
    return f"{getattr(servers, request.param).url}?namespace={uuid4().hex}"


def in_uvloop(url: str, work: Callable[[AsyncMemoryStore], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        async with asyncio.timeout(60), await everturn.open_async(url, **options) as store:
            await work(store)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def words(store: AsyncMemoryStore, session_id: str) -> list[Any]:
    return [message.content for message in await store.get_history(session_id)]


def test_tasks_lose_nothing(url: str) -> None:
    async def work(store: AsyncMemoryStore) -> None:
        async def say(number: int) -> None:
            for key in (f"{number}-{step}" for step in range(4)):
                await store.add_messages("all", turn(key), key=key)

        await asyncio.gather(*map(say, range(64)))
        found = await words(store, "all")
        assert found[::2] == found[1::2]
        assert sorted(found[::2]) == sorted(f"{number}-{step}" for number in range(64) for step in range(4))
        snapshot = await store.save_snapshot("all")
        await store.clear("all")
        await store.rollback_to_snapshot("all", snapshot)
        assert await words(store, "all") == found

    in_uvloop(url, work)


def test_a_large_turn_comes_back_whole(url: str) -> None:
    async def work(store: AsyncMemoryStore) -> None:
        large = ["x" * 3_000_000, "y" * 70_000]
        await store.add_messages("large", [everturn.ChatMessage("user", text) for text in large])
        assert await words(store, "large") == large

    in_uvloop(url, work, timeout=30)


def test_what_is_cancelled_is_settled(url: str) -> None:
    async def work(store: AsyncMemoryStore) -> None:
        dice = random.Random(7)
        kept: list[str] = []
        there: list[Any] = []
        for number in range(150):
            task = asyncio.create_task(store.add_messages("a", turn(str(number))))
            await asyncio.sleep(dice.choice([0, dice.uniform(0, 0.002)]))
            task.cancel()
            try:
                await task
                kept.append(str(number))
            except asyncio.CancelledError:
                pass
            if number % 50 == 49:
                there = await words(store, "a")
                await asyncio.sleep(0.02)
                assert await words(store, "a") == there, "something landed afterwards"
        assert there[::2] == there[1::2]
        assert set(kept) <= set(there)
        assert len(set(there)) == len(there) / 2

    in_uvloop(url, work)


SERVERS = ["valkey", "postgres"]


@pytest.mark.parametrize("backend", SERVERS)
def test_a_change_whose_reply_is_lost_is_made_once(backend: str, servers: Servers) -> None:
    with FaultProxy(getattr(servers, backend).url) as proxy:

        async def work(store: AsyncMemoryStore) -> None:
            await store.add_messages("a", turn("1"))
            proxy.swallow_next_reply(matching=b"the-second", then="close")
            await store.add_messages("a", turn("the-second"))
            proxy.cut()
            await store.add_messages("a", turn("3"))
            assert (await words(store, "a"))[::2] == ["1", "the-second", "3"]
            assert proxy.swallowed == 1

        in_uvloop(f"{proxy.url}?namespace={uuid4().hex}", work, timeout=20)


@pytest.mark.parametrize("backend", SERVERS)
def test_a_server_that_says_nothing_is_an_error_in_time(backend: str, servers: Servers) -> None:
    with FaultProxy(getattr(servers, backend).url) as proxy:

        async def work(store: AsyncMemoryStore) -> None:
            await store.add_messages("a", turn("1"))
            proxy.delay(float("inf"))
            with pytest.raises(MemoryStoreBackendError) as caught:
                await store.add_messages("a", turn("2"), key="2")
            assert caught.value.outcome == "unknown"
            proxy.restore()
            await store.add_messages("a", turn("2"), key="2")
            assert (await words(store, "a"))[::2] == ["1", "2"]

        in_uvloop(f"{proxy.url}?namespace={uuid4().hex}", work, timeout=2)
