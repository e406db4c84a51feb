"""Changes in an event loop: one that is alone is sent by its caller, those that wait together are sent together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import everturn
from everturn.backends.redis.transport.async_connection import OwnConnection
from everturn.testing.servers import ValkeyServer
from tests.store.speech import user


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_change_alone_wakes_no_other_task(server: ValkeyServer) -> None:
    made: list[Any] = []

    def noted(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main() -> None:
        async with await everturn.open_async(server.url) as store:
            await store.add_messages("a", [user("0")])
            asyncio.get_running_loop().set_task_factory(noted)
            for number in range(10):
                await store.add_messages("a", [user(str(number))])
            asyncio.get_running_loop().set_task_factory(None)

    asyncio.run(main())
    assert made == []


def test_changes_that_wait_together_are_sent_together(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = OwnConnection.send

    async def noted(self: OwnConnection, request: bytes, count: int) -> None:
        sent.append(count)
        await send(self, request, count)

    async def main() -> None:
        async with await everturn.open_async(server.url) as store:
            # Two at once: that many are under way at a time, so both connections are there before the server pauses.
            await asyncio.gather(*[store.add_messages(f"s{number}", [user("0")]) for number in range(2)])
            monkeypatch.setattr(OwnConnection, "send", noted)
            server.pause()
            try:
                tasks = [asyncio.create_task(store.add_messages(f"s{number}", [user("1")])) for number in range(50)]
                await let_others_run()
            finally:
                server.resume()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert sum(sent) == 50
    assert sorted(sent[:2]) == [1, 1]
    assert len(sent) <= 4


@pytest.mark.parametrize("times", [1, 3])
def test_a_caller_cancelled_after_its_change_was_sent_hears_of_it_when_the_change_has_settled(
    server: ValkeyServer, times: int
) -> None:
    async def main() -> None:
        async with await everturn.open_async(server.url, timeout=60) as store, asyncio.timeout(60):
            await store.add_messages("a", [user("0")])
            server.pause()
            try:
                task = asyncio.create_task(store.add_messages("a", [user("1")]))
                await let_others_run()
                for _ in range(times):
                    task.cancel()
                    await let_others_run()
                assert not task.done()
            finally:
                server.resume()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.info("a")).version == 2
            assert (await store.add_messages("a", [user("2")])).version == 3

    asyncio.run(main())
