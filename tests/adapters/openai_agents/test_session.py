"""EverturnSession, alone: what goes in comes out, exactly, on both kinds of stores of a store."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from agents.memory import SessionSettings
from hypothesis import given, settings
from hypothesis import strategies as st

import everturn
from everturn import ChatMessage, InvalidInput, Record, Summary, ToolCall, Unsupported
from everturn.adapters._shared import openai_items as items
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.checking import shows
from tests.adapters.stores import over_both_stores
from tests.tiers import examples

CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is order 1234?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I should look it up."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is in Bern.", "annotations": []}],
    },
]


def test_items_come_back_equal_and_read_well(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        assert await session.get_items() == []
        await session.add_items(CONVERSATION)
        await session.add_items([])
        assert await session.get_items() == CONVERSATION
        history = store.get_history("s")
        history = await history if inspect.isawaitable(history) else history
        assert [message.role for message in history] == ["user", "reasoning", "assistant", "tool", "assistant"]
        assert history[2].tool_calls[0]["function"]["name"] == "track"
        assert history[3].tool_call_id == "c1"
        assert history[4].text == "It is in Bern."

    over_both_stores(tmp_path, story)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "x" * 70, ""]) | JSON,
        "role": st.sampled_from(["user", "assistant", "developer", ""]) | JSON,
        "content": st.text() | st.lists(JSON, max_size=2) | JSON,
        "id": st.text(max_size=5) | JSON,
        "call_id": st.text(max_size=5) | JSON,
        "name": st.text(max_size=5) | JSON,
        "arguments": st.text(max_size=5) | JSON,
        "output": st.text(max_size=5) | JSON,
        "status": JSON,
        "without": JSON,
        "item": JSON,
    },
)


def strictly(value: Any) -> Any:
    """The value with its types: 1, 1.0 and True are equal to Python."""
    if isinstance(value, dict):
        return {name: strictly(item) for name, item in value.items()}
    return [strictly(item) for item in value] if isinstance(value, list) else (type(value).__name__, value)


@settings(max_examples=examples(500), deadline=None)
@given(FIELDS)
def test_any_item_at_all_comes_back_as_it_was(item: dict[str, Any]) -> None:
    message = items.to_message(item)
    assert strictly(items.to_item(message)) == strictly(item)
    assert [strictly(one) for one in items.to_items(message)] == [strictly(item)]


def test_a_limit_is_exactly_the_latest(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items(CONVERSATION)
        for limit in range(7):
            assert await session.get_items(limit) == CONVERSATION[len(CONVERSATION) - min(limit, 5) :]
        limited = EverturnSession("s", store, session_settings=SessionSettings(limit=2))
        assert await limited.get_items() == CONVERSATION[-2:]

    over_both_stores(tmp_path, story)


def test_pop_takes_exactly_the_last_and_can_be_undone(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items(CONVERSATION)
        for item in reversed(CONVERSATION):
            assert await session.pop_item() == item
        assert await session.pop_item() is None
        assert await session.get_items() == []
        await session.undo()
        assert await session.get_items() == CONVERSATION[:1]

    over_both_stores(tmp_path, story)


async def done(answer: Any) -> Any:
    """What a method of either face gives."""
    return await answer if inspect.isawaitable(answer) else answer


SUMMARY, TOOL_CALL = Summary("they said 1", (0.5, 0.25), covers=(1, 1)), ToolCall("track", {"order": 1}, result="Bern")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_pop_takes_nothing_but_the_item(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items([user("1")])
        await done(store.append("s", [SUMMARY, TOOL_CALL, Record("mine", "between")]))
        await session.add_items([user("2")])
        await done(store.append("s", [Record("mine", "behind"), TOOL_CALL, SUMMARY]))
        assert await session.pop_item() == user("2")
        left = (await done(store.state("s"))).entries
        behind = [Record("mine", "behind"), TOOL_CALL, SUMMARY]
        assert list(left) == [ChatMessage("user", "1"), SUMMARY, TOOL_CALL, Record("mine", "between"), *behind]
        assert [entry.seq for entry in left[:4]] == [1, 2, 3, 4]  # what stands before it has not moved
        assert await session.pop_item() == user("1")
        left = (await done(store.state("s"))).entries
        assert list(left) == [SUMMARY, TOOL_CALL, Record("mine", "between"), *behind]
        assert await session.pop_item() is None
        await session.undo()
        await session.undo()
        assert await session.get_items() == [user("1"), user("2")]
        assert len((await done(store.state("s"))).entries) == 8
        assert [hit.summary.text for hit in await done(store.search_summaries("s", [0.5, 0.25]))] == ["they said 1"] * 2

    over_both_stores(tmp_path, story)


def test_pop_finds_the_last_item_however_many_others_stand_behind_it(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await done(store.append("s", [Record("first", number) for number in range(70)]))
        await session.add_items([user("1")])
        await done(store.append("s", [Record("behind", number) for number in range(70)]))
        assert await session.pop_item() == user("1")
        assert await session.pop_item() is None
        bodies = [record.body for record in (await done(store.state("s"))).records]
        assert bodies == [*range(70), *range(70)]

    over_both_stores(tmp_path, story)


def test_pop_takes_a_part_of_a_message_and_keeps_what_stands_behind_it(tmp_path: Path) -> None:
    calls = [{"id": f"c{n}", "function": {"name": "track", "arguments": "{}"}} for n in range(3)]

    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await done(store.append("s", [ChatMessage("assistant", "Wait.", tool_calls=calls), Record("mine", 1)]))
        said = await session.get_items()
        for number in range(4, 0, -1):
            assert await session.get_items() == said[:number]
            assert await session.pop_item() == said[number - 1]
            assert [record.body for record in (await done(store.state("s"))).records] == [1]
        assert await session.get_items() == []

    over_both_stores(tmp_path, story)


def test_pop_after_a_trim_leaves_what_it_kept(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items([{"role": "system", "content": "sys"}])
        for number in range(4):
            await session.add_items([user(str(number))])
            await done(store.add_summary("s", Summary(f"until {number}", (0.5,), covers=(1, 2))))
        await done(store.trim("s", max_messages=2))
        for left in (["sys"], []):
            await session.pop_item()
            assert [item["content"] for item in await session.get_items()] == left
            summaries = await done(store.get_summaries("s"))
            assert [summary.text for summary in summaries] == [f"until {number}" for number in range(4)]

    over_both_stores(tmp_path, story)


@pytest.mark.parametrize("kind", ["lg.put", "pydantic_ai.record"])
def test_pop_refuses_what_another_frameworks_records_name(tmp_path: Path, kind: str) -> None:
    """They would name an item that is gone, and that framework could not read its own conversation any more."""

    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await done(store.append("s", [ChatMessage("user", "theirs"), Record(kind, {})]))
        before = await done(store.state("s"))
        with pytest.raises(Unsupported, match=rf"session 's'.*{kind}.*rollback"):
            await session.pop_item()
        assert await done(store.state("s")) == before
        await session.add_items([user("mine")])
        assert await session.pop_item() == user("mine")  # as the SDK does when a model fails
        assert list((await done(store.state("s"))).entries) == list(before.entries)

    over_both_stores(tmp_path, story)


def test_many_that_pop_and_append_at_once_share_the_items_exactly(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items([{"role": "user", "content": str(number)} for number in range(20)])

        async def pop() -> str:
            return str((await session.pop_item() or {})["content"])

        async def add(number: int) -> None:
            await session.add_items([{"role": "user", "content": f"new {number}"}])

        popped = await asyncio.gather(*(pop() for _ in range(10)), *(add(number) for number in range(10)))
        left = [item["content"] for item in await session.get_items()]
        everything = [str(number) for number in range(20)] + [f"new {number}" for number in range(10)]
        assert sorted([*popped[:10], *left]) == sorted(everything)

    over_both_stores(tmp_path, story)


@pytest.mark.parametrize("hide", ["clear", "trim"])
def test_items_that_were_hidden_and_are_added_again_are_there_again(tmp_path: Path, hide: str) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        last = {"role": "user", "content": "last"}
        left: list[dict[str, Any]] = []
        for _ in range(4):  # as the SDK does when it compacts, or restores what it could not
            await session.add_items(CONVERSATION)
            await session.add_items(CONVERSATION)  # a retry is still a retry
            assert await session.get_items() == [*left, *CONVERSATION]
            if hide == "clear":
                await session.clear_session()
            else:
                await session.add_items([last])
                answer = store.trim("s", max_messages=1)
                await answer if inspect.isawaitable(answer) else None
                left = [last]
            assert await session.get_items() == left

    over_both_stores(tmp_path, story)


def test_items_with_ids_are_stored_once_those_without_are_never_the_same(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items(CONVERSATION)
        await session.add_items(CONVERSATION)  # the retry of a caller that heard nothing
        assert await session.get_items() == CONVERSATION
        same = {"role": "user", "content": "yes"}
        fake = {"type": "message", "role": "assistant", "content": "ok", "id": "__fake_id__"}
        for item in (same, fake):
            await session.add_items([item])
            await session.add_items([item])
        assert await session.get_items() == [*CONVERSATION, same, same, fake, fake]
        edited = CONVERSATION[4] | {"status": "incomplete"}
        await session.add_items([CONVERSATION[4]])
        await session.add_items([edited])  # the same id, and something else
        assert (await session.get_items())[-1] == edited

    over_both_stores(tmp_path, story)


def test_an_item_that_was_popped_can_be_added_again(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items(CONVERSATION[:2])
        await session.add_items(CONVERSATION[2:3])
        await session.pop_item()
        await session.add_items(CONVERSATION[2:3])
        assert await session.get_items() == CONVERSATION[:3]

    over_both_stores(tmp_path, story)


def test_snapshots_and_rollback(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        await session.add_items(CONVERSATION[:1])
        snapshot = await session.save_snapshot("before")
        await session.add_items(CONVERSATION[1:])
        await session.clear_session()
        assert await session.get_items() == []
        await session.rollback_to_snapshot(snapshot)
        assert await session.get_items() == CONVERSATION[:1]
        assert [one.label for one in await session.list_snapshots()] == ["before"]

    over_both_stores(tmp_path, story)


def test_what_cannot_be_kept_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        session = EverturnSession("s", store)
        for wrong in (
            ["text"],
            [{"role": "user", "content": "x", "score": float("nan")}],
            [{"role": "user", "x": b"y"}],
        ):
            with pytest.raises(InvalidInput):
                await session.add_items([{"role": "user", "content": "first"}, *wrong])
        assert await session.get_items() == []

    over_both_stores(tmp_path, story)


def test_a_conversation_begun_elsewhere_can_be_read_here(tmp_path: Path) -> None:
    calls = [{"id": f"c{n}", "function": {"name": "track", "arguments": "{}"}} for n in range(2)]

    async def story() -> None:
        with everturn.open("sqlite://") as store:
            store.add_messages(
                "s", [ChatMessage("user", "two orders"), ChatMessage("assistant", "Wait.", tool_calls=calls)]
            )
            session = EverturnSession("s", store)
            read = await session.get_items()
            assert [item.get("type", item.get("role")) for item in read] == [
                "user",
                "assistant",
                "function_call",
                "function_call",
            ]
            assert await session.pop_item() == read[-1]
            assert await session.get_items() == read[:-1]

    asyncio.run(story())


def test_people_read_what_was_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        asyncio.run(EverturnSession("customer-42", store).add_items(CONVERSATION))
    words = ("Where is order 1234?", "reasoning", "I should look it up.", "track", '"order": 1234', "in Bern")
    shows(url, "customer-42", "user", *words, "assistant", "It is in Bern.")


def test_something_that_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="store"):
        EverturnSession("s", "sqlite://")  # type: ignore[arg-type]
