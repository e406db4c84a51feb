"""A fold of an asynchronous store: a coroutine summarises, and may be cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import AsyncMemoryStore, ChatMessage, InvalidInput


async def filled(path: Path) -> AsyncMemoryStore:
    store = await everturn.open_async(f"sqlite:///{path}/memory.db")
    for number in range(4):
        await store.add_messages("a", [ChatMessage("user", str(number))])
    return store


def test_summarize_and_embed_may_be_coroutines(tmp_path: Path) -> None:
    async def story() -> None:
        async with await filled(tmp_path) as store:

            async def summarize(messages: list[ChatMessage], _earlier: Any) -> str:
                await asyncio.sleep(0)
                return f"{len(messages)} messages"

            async def embed(_text: str) -> list[float]:
                return [1.0]

            assert await store.fold("a", summarize, max_messages=1, embed=embed)
            assert (await store.search_summaries("a", [1.0]))[0].summary.text == "3 messages"

    asyncio.run(story())


def test_a_fold_that_is_cancelled_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with await filled(tmp_path) as store:
            before, asked = await store.state("a"), asyncio.Event()

            async def summarize(*_: Any) -> str:
                asked.set()
                await asyncio.Event().wait()
                return "never"

            task = asyncio.create_task(store.fold("a", summarize, max_messages=1))
            await asked.wait()
            await store.get_history("a")  # nothing is locked
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.state("a") == before
            assert [info.session_id for info in (await store.sessions()).sessions] == ["a"]
            assert await store.fold("a", lambda *_: "now", max_messages=1) is not None

    asyncio.run(story())


def test_a_plain_function_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with await filled(tmp_path) as store:
            loop = asyncio.get_running_loop()

            def summarize(*_: Any) -> str:  # in a thread: it can wait for the loop
                return asyncio.run_coroutine_threadsafe(store.get_history("a"), loop).result(30)[0].text

            await store.fold("a", summarize, max_messages=1)
            assert [summary.text for summary in await store.get_summaries("a")] == ["0"]

    asyncio.run(story())


def test_a_blocking_store_takes_no_coroutine(tmp_path: Path) -> None:
    async def summarize(*_: Any) -> str:
        return "never"

    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        for number in range(3):
            store.add_messages("a", [ChatMessage("user", str(number))])
        before = store.state("a")
        with pytest.raises(InvalidInput, match="coroutine"):
            store.fold("a", summarize, max_messages=1)
        assert store.state("a") == before
