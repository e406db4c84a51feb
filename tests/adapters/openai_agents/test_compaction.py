"""The SDK's compaction over EverturnSession: one step, nothing lost that was said meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings

import everturn
from everturn import ToolCall
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.stores import over_both_stores

SUMMARY = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}


def said(number: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": f"answer {number}"}]


async def filled(store: Any, turns: int = 3) -> EverturnSession:
    session = EverturnSession("s", store)
    for number in range(turns):
        await session.add_items(said(number))
    return session


class Client:
    """A client of the SDK whose model summarises as it is told to."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.responses = self
        self._meanwhile = meanwhile

    async def compact(self, **_: Any) -> Any:
        if self._meanwhile is not None:
            await self._meanwhile()
        return SimpleNamespace(output=[dict(SUMMARY)], usage=None)


def test_settings_may_be_a_dict_as_in_the_sdk(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = await filled(store)
        limited = EverturnSession("s", store, session_settings={"limit": 2})
        assert await limited.get_items() == said(2)
        session.session_settings = {"limit": 1}  # type: ignore[assignment]  # whoever sets it later does the same
        assert await session.get_items() == said(2)[1:]
        session.session_settings = SessionSettings(limit=None)
        assert len(await session.get_items()) == 6

    over_both_stores(tmp_path, story)


def test_no_reader_ever_sees_a_compacted_history_empty(tmp_path: Path) -> None:
    async def story() -> None:
        url = f"sqlite:///{tmp_path / 'memory.db'}"
        async with await everturn.open_async(url) as store, await everturn.open_async(url) as other:
            session = await filled(store)
            reader = EverturnSession("s", other)
            seen: list[int] = []

            async def read() -> None:
                while True:
                    seen.append(len(await reader.get_items()))

            reading = asyncio.create_task(read())
            for _ in range(20):
                await session.add_items(said(9))
                await OpenAIResponsesCompactionSession("s", session, client=Client()).run_compaction(  # type: ignore[arg-type]
                    {"force": True, "compaction_mode": "input"}
                )
                assert (await session.get_items())[0]["type"] == "compaction"
            reading.cancel()
            assert seen
            assert 0 not in seen

    asyncio.run(story())


def test_a_suffix_is_replaced_and_what_is_no_message_stays(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = await filled(store)
        called = store.add_tool_call("s", ToolCall("track", {"order": 1}))
        _ = await called if asyncio.iscoroutine(called) else called
        snapshot = await session._get_compaction_snapshot(3)
        assert snapshot.items == [*said(1)[1:], *said(2)]
        assert not snapshot.complete
        assert await snapshot.replace_suffix(1, [SUMMARY])
        assert await session.get_items() == [*said(0), *said(1), SUMMARY]
        calls = store.get_tool_calls("s")
        calls = await calls if asyncio.iscoroutine(calls) else calls
        assert [call.name for call in calls] == ["track"]
        await session.undo()
        assert len(await session.get_items()) == 6

    over_both_stores(tmp_path, story)


def test_what_is_added_while_the_model_summarises_stays(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = await filled(store)
        snapshot = await session._get_compaction_snapshot(100)
        assert snapshot.complete
        assert snapshot.items == [*said(0), *said(1), *said(2)]
        await session.add_items(said(3))
        assert not await snapshot.replace_suffix(0, [SUMMARY])
        assert await session.get_items() == [*said(0), *said(1), *said(2), *said(3)]

    over_both_stores(tmp_path, story)


def test_a_subclass_is_not_gone_behind(tmp_path: Path) -> None:
    class Mine(EverturnSession):
        pass

    async def story(store: Any) -> None:
        assert await Mine("s", store)._get_compaction_snapshot(3) is None
        assert not await Mine("s", store)._atomic_replace_items([])

    over_both_stores(tmp_path, story)


@pytest.mark.parametrize("start", [0, 1])
def test_a_snapshot_of_nothing_replaces_nothing(tmp_path: Path, start: int) -> None:
    async def story(store: Any) -> None:
        snapshot = await EverturnSession("s", store)._get_compaction_snapshot(5)
        assert (snapshot.items, snapshot.complete) == ([], True)
        assert not await snapshot.replace_suffix(start, [SUMMARY])

    over_both_stores(tmp_path, story)
