"""EverturnChatMessageHistory: every message comes back as it was, alone and under RunnableWithMessageHistory."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from langchain_core import messages as langchain
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import everturn
from everturn import AsyncMemoryStore, ChatMessage, InvalidInput, MemoryStore, Unsupported
from everturn.adapters.langchain import EverturnChatMessageHistory
from tests.adapters.checking import shows
from tests.adapters.stores import over_both_stores

CALLS: list[Any] = [
    {"name": "f", "args": {"x": [1, None, 1.0, "é"]}, "id": "c1", "type": "tool_call"},
    {"name": "g", "args": {}, "id": None, "type": "tool_call"},
]
USAGE: Any = {
    "input_tokens": 1,
    "output_tokens": 2,
    "total_tokens": 3,
    "input_token_details": {"cache_read": 1},
    "output_token_details": {"reasoning": 2},
}
SHARED: dict[str, Any] = {
    "additional_kwargs": {"k": (1, {"x": None}), 1: {"!": "marked"}},
    "response_metadata": {"model": "m", "big": 2**70, "raw": b"\xff"},
    "name": "Ann",
    "id": "i1",
}
ANSWER: dict[str, Any] = SHARED | {
    "tool_calls": CALLS,
    "invalid_tool_calls": [{"name": "f", "args": "{", "id": "c2", "error": "bad", "type": "invalid_tool_call"}],
    "usage_metadata": USAGE,
}
RESULT: dict[str, Any] = SHARED | {"tool_call_id": "c1", "artifact": {"raw": b"42", "of": {1, 2}}, "status": "error"}

# With every field that its class has set to something of its own.
WHOLE: list[BaseMessage] = [
    HumanMessage("hi", **SHARED),
    SystemMessage("be kind", **SHARED),
    AIMessage("answer", **ANSWER),
    ToolMessage("42", **RESULT),
    langchain.FunctionMessage("r", **SHARED),
    langchain.ChatMessage("hm", role="narrator", **SHARED),
    langchain.RemoveMessage(id="a1"),
    langchain.HumanMessageChunk("hi", **SHARED),
    langchain.SystemMessageChunk("be kind", **SHARED),
    langchain.AIMessageChunk(
        "answer",
        chunk_position="last",
        tool_call_chunks=[{"name": "f", "args": '{"x":', "id": "c", "index": 0, "type": "tool_call_chunk"}],
        **SHARED,
        usage_metadata=USAGE,
    ),
    langchain.ToolMessageChunk("42", **RESULT),
    langchain.FunctionMessageChunk("r", **SHARED),
    langchain.ChatMessageChunk("hm", role="narrator", **SHARED),
]
PLAIN: list[BaseMessage] = [
    HumanMessage("hi"),
    HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
    HumanMessage(["plain", {"type": "text", "text": "mixed"}]),
    HumanMessage("a field that its class does not have", volume=(3,)),
    HumanMessage(""),
    HumanMessage("nul \x00, \u2028 and \U0001f600"),
    AIMessage("", tool_calls=CALLS),
    AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "so"}], id="a"),
    ToolMessage([{"type": "text", "text": "42"}], tool_call_id=""),
    langchain.AIMessageChunk(""),
    langchain.ChatMessage("", role=""),
    langchain.ChatMessage("long", role="r" * 100),
]


def exactly(message: BaseMessage) -> tuple[object, ...]:
    return type(message), repr(sorted(vars(message).items())), repr(message.model_extra)


# --- what goes in comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", WHOLE, ids=lambda message: type(message).__name__)
def test_a_message_of_every_class_comes_back_with_every_field(message: BaseMessage) -> None:
    with everturn.open("sqlite://") as store:
        history = EverturnChatMessageHistory("s", store)
        history.add_messages([message])
        [read] = history.messages
    assert read == message
    assert exactly(read) == exactly(message)


def test_no_class_and_no_field_of_langchains_is_left_out() -> None:
    """A release that adds one is noticed here."""
    kinds = {kind for name in dir(langchain) if isinstance(kind := getattr(langchain, name), type)}
    concrete = {kind for kind in kinds if issubclass(kind, BaseMessage)} - {BaseMessage, langchain.BaseMessageChunk}
    assert {type(message) for message in WHOLE} == concrete
    derived = {"type", "example", "content", "role", "tool_calls", "invalid_tool_calls", "tool_call_chunks"}
    for message in WHOLE:
        if isinstance(message, langchain.RemoveMessage):
            continue
        unset = {name for name, field in type(message).model_fields.items() if vars(message)[name] == field.default}
        assert unset <= derived, message


def test_messages_come_back_in_order_over_both_stores(tmp_path: Path) -> None:
    async def story(store: MemoryStore | AsyncMemoryStore) -> None:
        history = EverturnChatMessageHistory("s", store)
        assert await history.aget_messages() == []
        await history.aadd_messages(PLAIN)
        await history.aadd_messages([])
        read = await history.aget_messages()
        assert read == PLAIN
        assert list(map(exactly, read)) == list(map(exactly, PLAIN))
        await history.aclear()
        assert await history.aget_messages() == []

    over_both_stores(tmp_path, story)


ZURICH = ZoneInfo("Europe/Zurich")
TIMES: list[Any] = [
    dt.datetime(2026, 1, 1, 12, 30),  # noqa: DTZ001 - those without a zone as well
    dt.datetime(2026, 1, 1, 12, 30, 1, 5, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(-dt.timedelta(hours=3, seconds=7))),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZURICH),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZURICH, fold=1),
    dt.date(2026, 1, 1),
    dt.time(12, 30, 0, 1),
    dt.time(12, 30, tzinfo=ZURICH),
    dt.timedelta(days=-1, microseconds=3),
    Decimal("1.50"),
    Decimal("-0"),
    Decimal("NaN123"),
    uuid.UUID(int=5),
]


@pytest.mark.parametrize("value", TIMES, ids=repr)
def test_times_decimals_and_uuids_come_back_as_such(value: Any) -> None:
    with everturn.open("sqlite://") as store:
        history = EverturnChatMessageHistory("s", store)
        history.add_messages([AIMessage("x", response_metadata={"of": [value]})])
        [read] = history.messages
        assert repr(read.response_metadata["of"]) == repr([value])


def test_a_time_in_a_zone_that_is_not_here_is_an_error_that_names_it() -> None:
    at = {"!": "datetime", "of": ["2026-01-01T00:00:00", "Nowhere/Land", 0]}
    with everturn.open("sqlite://") as store:
        own = {"response_metadata": {"at": at}}
        store.add_messages("s", [ChatMessage("assistant", "x", metadata={"langchain": own})])
        with pytest.raises(Unsupported, match=r"message 1 of session 's'.*Nowhere/Land"):
            EverturnChatMessageHistory("s", store).messages  # noqa: B018


def test_what_is_read_is_the_readers_own() -> None:
    with everturn.open("sqlite://") as store:
        history = EverturnChatMessageHistory("s", store)
        history.add_messages([AIMessage("", tool_calls=CALLS), HumanMessage("hi")])
        for read in history.messages:
            read.additional_kwargs["mine"] = read.response_metadata["mine"] = True
            read.content = "changed"
        history.messages[0].tool_calls.clear()  # type: ignore[attr-defined]
        assert history.messages == [AIMessage("", tool_calls=CALLS), HumanMessage("hi")]


def test_a_turn_is_one_change_and_clear_can_be_undone() -> None:
    with everturn.open("sqlite://") as store:
        history = EverturnChatMessageHistory("s", store)
        history.add_messages([HumanMessage("one"), AIMessage("two")])
        history.add_user_message("three")
        history.add_ai_message("four")
        assert [change.seqs for change in store.changes("s")] == [(4,), (3,), (1, 2)]
        history.clear()
        assert history.messages == []
        store.undo("s")
        assert [message.text for message in history.messages] == ["one", "two", "three", "four"]
        assert str(history) == "Human: one\nAI: two\nHuman: three\nAI: four"


def test_people_read_what_was_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        EverturnChatMessageHistory("customer-42", store).add_messages(
            [
                HumanMessage("Where is order 1234?"),
                AIMessage("", id="a", tool_calls=[{"name": "track", "args": {"order": 1234}, "id": "c1"}]),
                ToolMessage("in Bern", tool_call_id="c1"),
                AIMessage([{"type": "text", "text": "It is in Bern."}], usage_metadata=USAGE),
            ]
        )
    shows(
        url,
        "customer-42",
        "user",
        "Where is order 1234?",
        "assistant",
        "track",
        '"order": 1234',
        "tool",
        "in Bern",
        "It is in Bern.",
    )


# --- refusals --------------------------------------------------------------------------------------------------------


class Loud(HumanMessage):
    volume: int = 11


NAMED = dt.timezone(dt.timedelta(hours=1), "a name that no text of a time has")


@pytest.mark.parametrize(
    "wrong",
    [
        HumanMessage("x", additional_kwargs={"at": dt.datetime(2026, 1, 1, tzinfo=NAMED)}),
        AIMessage("x", response_metadata={"cost": Decimal("sNaN")}),
        HumanMessage("lone \ud800"),
        HumanMessage("x", additional_kwargs={"lone \ud800": 1}),
        AIMessage("x", response_metadata={"score": float("nan")}),
        ToolMessage("x", tool_call_id="c", artifact=object()),
        Loud("HI"),
        "text",
        ("human", "text"),
    ],
    ids=["time zone", "signaling", "surrogate", "surrogate key", "nan", "object", "subclass", "text", "tuple"],
)
def test_what_would_not_come_back_is_refused_and_nothing_is_written(wrong: Any) -> None:
    with everturn.open("sqlite://") as store:
        history = EverturnChatMessageHistory("s", store)
        with pytest.raises(InvalidInput, match=r"messages\[1\]"):
            history.add_messages([HumanMessage("first"), wrong])
        assert history.messages == []


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (AIMessage("x", response_metadata={"log": [1, {"score": float("nan")}]}), "response_metadata.log[1].score"),
        (ToolMessage("x", tool_call_id="c", artifact=object()), "artifact"),
        (HumanMessage("x", additional_kwargs={"of": ({1: {"k": object()}},)}), "additional_kwargs.of[0].1.k"),
        (HumanMessage("x", additional_kwargs={"lone \ud800": 1}), "additional_kwargs"),
        (HumanMessage("lone \ud800"), "content"),
    ],
    ids=["nan", "object", "deep", "key", "content"],
)
def test_a_refusal_names_the_field_and_the_place_in_it(wrong: BaseMessage, path: str) -> None:
    with everturn.open("sqlite://") as store, pytest.raises(InvalidInput) as refused:
        EverturnChatMessageHistory("s", store).add_messages([HumanMessage("first"), wrong])
    assert refused.value.path == f"messages[1].{path}"


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="store: "):
        EverturnChatMessageHistory("s", "sqlite://")  # type: ignore[arg-type]


def test_blocking_methods_over_an_async_store_say_what_to_use() -> None:
    async def call() -> None:
        async with await everturn.open_async("sqlite://") as store:
            history = EverturnChatMessageHistory("s", store)
            for blocking in (lambda: history.messages, history.clear, lambda: history.add_messages([])):
                with pytest.raises(Unsupported, match="use its async methods"):
                    blocking()

    asyncio.run(call())


def test_a_message_of_a_class_that_is_not_here_is_an_error_that_names_it() -> None:
    with everturn.open("sqlite://") as store:
        store.add_messages("s", [ChatMessage("user", "x", metadata={"langchain": {"class": "FutureMessage"}})])
        store.add_messages("t", [ChatMessage("user", "x", metadata={"langchain": {"whole": {"!": "serde", "of": []}}})])
        with pytest.raises(Unsupported, match=r"message 1 of session 's'.*FutureMessage"):
            EverturnChatMessageHistory("s", store).messages  # noqa: B018
        with pytest.raises(Unsupported, match=r"message 1 of session 't'.*to_langchain"):
            EverturnChatMessageHistory("t", store).messages  # noqa: B018


def test_async_methods_over_a_blocking_store_let_the_loop_go_on() -> None:
    turn = threading.Event()

    class Waiting(EverturnChatMessageHistory):
        async def _get(self) -> list[BaseMessage]:
            assert turn.wait(timeout=60), "the loop stood still"
            return await super()._get()

    async def both() -> None:
        with everturn.open("sqlite://") as store:
            reading = asyncio.create_task(Waiting("s", store).aget_messages())
            await asyncio.sleep(0)
            turn.set()  # only a loop that goes on gets here
            assert await reading == []

    asyncio.run(both())


# --- under LangChain -------------------------------------------------------------------------------------------------


def answer(prompt: Any) -> AIMessage:
    said = [message.text for message in prompt.to_messages() if message.type == "human"]
    return AIMessage(f"heard {len(said)}, last {said[-1]}")


def chain(
    make: Callable[[str], EverturnChatMessageHistory], reply: Callable[[Any], AIMessage] = answer
) -> RunnableWithMessageHistory:
    prompt = ChatPromptTemplate.from_messages([("system", "Help."), MessagesPlaceholder("past"), ("human", "{asked}")])
    with pytest.warns(DeprecationWarning, match="Use LangGraph"):
        return RunnableWithMessageHistory(
            prompt | RunnableLambda(reply), make, input_messages_key="asked", history_messages_key="past"
        )


CONFIG: Any = {"configurable": {"session_id": "s"}}


def test_a_chain_remembers() -> None:
    with everturn.open("sqlite://") as store:
        talk = chain(lambda session_id: EverturnChatMessageHistory(session_id, store))
        assert talk.invoke({"asked": "one"}, CONFIG).text == "heard 1, last one"
        assert talk.invoke({"asked": "two"}, CONFIG).text == "heard 2, last two"
        assert talk.invoke({"asked": "else"}, {"configurable": {"session_id": "t"}}).text == "heard 1, last else"
        said = [(message.role, message.text) for message in store.get_history("s")]
        assert said == [
            ("user", "one"),
            ("assistant", "heard 1, last one"),
            ("user", "two"),
            ("assistant", "heard 2, last two"),
        ]
        assert [change.kind for change in store.changes("s")] == ["append", "append"]


def test_a_chain_that_is_awaited_or_streamed_remembers(tmp_path: Path) -> None:
    async def story(store: MemoryStore | AsyncMemoryStore) -> None:
        history = EverturnChatMessageHistory("s", store)
        talk = chain(lambda _: history)
        assert (await talk.ainvoke({"asked": "one"}, CONFIG)).text == "heard 1, last one"
        chunks = [chunk.text async for chunk in talk.astream({"asked": "two"}, CONFIG)]
        assert "".join(chunks) == "heard 2, last two"
        read = await history.aget_messages()
        assert [message.text for message in read] == ["one", "heard 1, last one", "two", "heard 2, last two"]

    over_both_stores(tmp_path, story)


def test_what_another_worker_says_meanwhile_costs_nobody_a_message() -> None:
    with everturn.open("sqlite://") as store:

        def interrupted(prompt: Any) -> AIMessage:
            EverturnChatMessageHistory("s", store).add_messages([HumanMessage("meanwhile"), AIMessage("yes")])
            return answer(prompt)

        chain(lambda session_id: EverturnChatMessageHistory(session_id, store), interrupted).invoke(
            {"asked": "one"}, CONFIG
        )
        assert [message.text for message in store.get_history("s")] == ["meanwhile", "yes", "one", "heard 1, last one"]


def test_without_the_name_of_the_history_langchain_itself_drops_a_message() -> None:
    """It tells old from new by counting. Our page says so, as above."""
    with everturn.open("sqlite://") as store:

        def interrupted(_: Any) -> AIMessage:
            EverturnChatMessageHistory("s", store).add_messages([HumanMessage("meanwhile"), AIMessage("yes")])
            return AIMessage("hi")

        with pytest.warns(DeprecationWarning, match="Use LangGraph"):
            nameless = RunnableWithMessageHistory(
                RunnableLambda(interrupted), lambda session_id: EverturnChatMessageHistory(session_id, store)
            )
        nameless.invoke([HumanMessage("mine")], CONFIG)
        assert [message.text for message in store.get_history("s")] == ["meanwhile", "yes", "hi"]


def test_langchain_only_logs_that_a_history_could_not_be_saved(caplog: pytest.LogCaptureFixture) -> None:
    """Its own doing, which our page tells people; if a release mends it, so may the page be."""
    with everturn.open("sqlite://") as store:
        failing = EverturnChatMessageHistory("s", store)

        def unsaveable(prompt: Any) -> AIMessage:
            failing.session_id = ""  # which no session has
            return answer(prompt)

        assert chain(lambda _: failing, unsaveable).invoke({"asked": "one"}, CONFIG).text == "heard 1, last one"
        assert "InvalidInput" in caplog.text
        assert store.get_history("s") == []
