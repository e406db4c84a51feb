"""Event loops that end while changes are under way: these have settled by then, as after any cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import everturn
from everturn import AsyncMemoryStore, MemoryStore
from everturn.testing.faults.proxy import FaultProxy
from tests.integration.children import eventually_async
from tests.store.places import Servers
from tests.store.speech import user

KEPT = "kept on its way"


def options_for(url: str) -> dict[str, Any]:
    return {"namespace": "loop-end"} | ({"warnings": False} if url.startswith("redis") else {})


@pytest.fixture(params=["valkey", "postgres"])
def url(request: pytest.FixtureRequest, servers: Servers) -> str:
    return str(getattr(servers, request.param).url)


@pytest.fixture
def proxy(url: str) -> Iterator[FaultProxy]:
    with FaultProxy(url) as proxy:
        yield proxy


@pytest.fixture
def store(url: str) -> Iterator[MemoryStore]:
    """Open the store directly, without the proxy."""
    with everturn.open(url, timeout=60, **options_for(url)) as store:
        store.erase("a")
        yield store
        store.erase("a")


def ended(proxy: FaultProxy, timeout: float) -> asyncio.Task[Any]:
    """A change that the proxy keeps, and that an event loop ended behind."""
    beside: list[asyncio.Task[None]] = []

    async def close_at_the_end(store: AsyncMemoryStore) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await store.close()

    async def main() -> asyncio.Task[Any]:
        store = await everturn.open_async(proxy.url, timeout=timeout, **options_for(proxy.url))
        beside.append(asyncio.create_task(close_at_the_end(store)))
        await store.add_messages("a", [user("1")])
        proxy.keep_next_request(matching=KEPT.encode())
        change = asyncio.create_task(store.add_messages("a", [user(KEPT)]))
        await eventually_async(lambda: proxy.kept == 1, "the change is on its way")
        return change

    return asyncio.run(main())


def test_a_change_that_was_sent_has_settled_when_the_loop_has_ended(store: MemoryStore, proxy: FaultProxy) -> None:
    """It would land behind whatever the caller looks at next."""
    release = threading.Timer(0.2, proxy.release_requests)
    release.start()
    try:
        assert ended(proxy, timeout=60).cancelled()
        there = [message.text for message in store.get_history("a")]
    finally:
        release.join()
    assert there == [message.text for message in store.get_history("a")]


def test_where_nothing_comes_back_a_loop_ends_with_the_time_out_of_its_changes(
    store: MemoryStore, proxy: FaultProxy
) -> None:
    assert ended(proxy, timeout=2).cancelled()
    there = [message.text for message in store.get_history("a")]
    proxy.release_requests()
    assert there == [message.text for message in store.get_history("a")] == ["1"]
