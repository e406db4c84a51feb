"""EverturnCompactionSession: compaction by folds, safe with several instances and processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import InvalidInput
from everturn.adapters.openai_agents import EverturnCompactionSession
from everturn.core.prompts import SUMMARY_PREFIX
from tests.adapters.stores import over_both_stores
from tests.integration.children import children


def counting(messages: list[Any], earlier: Any) -> str:
    """A model: how many messages it was given, behind the summary before."""
    return f"{earlier.text if earlier else ''}[{len(messages)}]"


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"question {number}"}


async def filled(store: Any, **options: Any) -> EverturnCompactionSession:
    given = {"summarize": counting, "max_messages": 2, "fold_at": 4} | options
    session = EverturnCompactionSession("s", store, **given)
    for number in range(6):
        await session.add_items([said(number)])
    return session


def test_a_compaction_hides_the_oldest_items_behind_a_summary(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = await filled(store)
        await session.run_compaction({"response_id": "r1"})
        summary = {"role": "system", "content": f"{SUMMARY_PREFIX}[4]"}
        assert await session.get_items() == [summary, said(4), said(5)]
        assert await session.get_items(2) == [said(4), said(5)]
        await session.run_compaction({"response_id": "r2"})  # not long enough
        assert len(await session.get_items()) == 3
        await session.add_items([said(6)])
        await session.run_compaction({"force": True})
        assert (await session.get_items())[0]["content"] == f"{SUMMARY_PREFIX}[4][1]"
        await session.undo()
        await session.undo()
        assert await session.get_items() == [said(number) for number in range(7)]

    over_both_stores(tmp_path, story)


def test_items_that_are_added_while_the_model_summarises_stay(tmp_path: Path) -> None:
    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/s.db") as store:

            async def slow(messages: list[Any], earlier: Any) -> str:
                await other.add_items([said(6)])
                await other.run_compaction({"force": True})  # another instance: it must not pay as well
                return counting(messages, earlier)

            other = EverturnCompactionSession("s", store, summarize=pytest.fail)
            session = await filled(store, summarize=slow)
            await session.run_compaction()
            assert [item["content"] for item in await session.get_items()] == [
                *(f"{SUMMARY_PREFIX}[4]", "question 4", "question 5", "question 6")
            ]

    asyncio.run(story())


def compact(url: str) -> None:
    """Compact in a process of its own; it says when it pays for the model."""

    def paying(messages: list[Any], earlier: Any) -> str:
        print("paid", flush=True)
        return "".join(message.text[-1] for message in messages)

    async def story() -> None:
        async with await everturn.open_async(url, timeout=30) as store:
            session = EverturnCompactionSession("s", store, summarize=paying, max_messages=2, fold_at=4)
            await session.run_compaction()

    asyncio.run(story())


def test_two_processes_that_compact_at_once_pay_one_model(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"

    async def fill() -> None:
        async with await everturn.open_async(url) as store:
            await filled(store)

    asyncio.run(fill())
    with children((compact, url), (compact, url)) as both:
        assert sorted(child.finished() for child in both) == ["", "paid\n"]
    with everturn.open(url) as store:
        assert [summary.text for summary in store.get_summaries("s")] == ["0123"]


def test_an_absent_session_is_left_absent_and_what_is_no_function_is_refused(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        await EverturnCompactionSession("new", store, summarize=counting).run_compaction({"force": True})
        assert await EverturnCompactionSession("new", store, summarize=counting).get_items() == []
        with pytest.raises(InvalidInput, match="summarize"):
            EverturnCompactionSession("new", store, summarize="a text")

    over_both_stores(tmp_path, story)
