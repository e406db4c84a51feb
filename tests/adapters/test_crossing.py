"""A conversation begun under one framework goes on under another. The table is in docs/adapters/README.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ChatMessage as OtherMessage
from langgraph.graph import START, MessagesState, StateGraph
from llama_index.core.base.llms import types as llama

import everturn
from everturn import MemoryStore, Unsupported
from everturn.adapters.langchain import EverturnChatMessageHistory
from everturn.adapters.langgraph import EverturnSaver, to_langchain
from everturn.adapters.llama_index import EverturnChatStore
from everturn.adapters.openai_agents import EverturnSession

IMAGE = "https://example.org/a.png"
ITEMS: list[Any] = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "Where is it?"}, {"type": "input_image", "image_url": IMAGE}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I should look it up."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Bern"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is in Bern.", "annotations": []}],
    },
]
CALL = {"name": "track", "args": {"order": 1234}, "id": "c1", "type": "tool_call"}


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """With a conversation in it that began under OpenAI Agents."""
    with everturn.open("sqlite://") as store:
        asyncio.run(EverturnSession("s", store).add_items(ITEMS))
        yield store


def told(messages: list[BaseMessage]) -> list[tuple[Any, ...]]:
    return [(type(message), message.content) for message in messages]


AS_LANGCHAIN: list[tuple[Any, ...]] = [
    (SystemMessage, "Be brief."),
    (HumanMessage, [{"type": "text", "text": "Where is it?"}, {"type": "image_url", "image_url": {"url": IMAGE}}]),
    (AIMessage, [{"type": "reasoning", "reasoning": "I should look it up."}]),
    (AIMessage, ""),
    (ToolMessage, "in Bern"),
    (OtherMessage, ""),
    (AIMessage, [{"type": "text", "text": "It is in Bern."}]),
]


def test_openai_agents_under_langchain(store: MemoryStore) -> None:
    history = EverturnChatMessageHistory("s", store)
    read: list[Any] = history.messages
    assert told(read) == AS_LANGCHAIN
    assert read[3].tool_calls == [CALL]
    assert read[4].tool_call_id == "c1"
    assert read[5].role == "web_search_call"
    assert [message.id for message in read] == [None, None, "rs_1", "fc_1", None, "ws_1", "msg_1"]
    assert read[6].text == "It is in Bern."
    history.add_messages([HumanMessage("Thanks!")])
    items = asyncio.run(EverturnSession("s", store).get_items())
    assert items == [*ITEMS, {"role": "user", "content": "Thanks!"}]


def test_openai_agents_under_langgraph(store: MemoryStore) -> None:
    seen: list[list[BaseMessage]] = []

    def bot(state: MessagesState) -> dict[str, Any]:
        seen.append(state["messages"])
        return {"messages": [AIMessage("You are welcome.", id="a1")]}

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    graph = builder.compile(checkpointer=EverturnSaver(store))
    past = to_langchain(store.get_history("s"))
    config: Any = {"configurable": {"thread_id": "s"}}
    graph.invoke({"messages": [*past, HumanMessage("Thanks!", id="h1")]}, config)
    [read] = seen
    assert told(read[:-1]) == AS_LANGCHAIN
    assert [message.id for message in read] == [
        *("everturn-1", "everturn-2", "rs_1", "fc_1", "everturn-5", "ws_1", "msg_1", "h1"),
    ]
    tool: Any = read[3]
    assert tool.tool_calls == [CALL]
    items = asyncio.run(EverturnSession("s", store).get_items())  # what was there is not written again
    assert items[:7] == ITEMS
    assert [item["content"] for item in items[7:]] == ["Thanks!", "You are welcome."]


def function_call(number: int) -> dict[str, Any]:
    call = f"c{number}"
    return {"type": "function_call", "id": f"fc_{number}", "call_id": call, "name": "track", "arguments": "{}"}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": f"result {number}"}


PARALLEL: list[Any] = [
    {"role": "user", "content": "Where are they?"},
    {"role": "assistant", "content": "Wait."},
    function_call(1),
    {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "And the others."}]},
    function_call(2),
    function_call(3),
    output(2),
    output(1),
    output(3),
    {"role": "assistant", "content": "All in Bern."},
]
IN_TURN = ["human", "ai", "ai c1", "tool c1", "ai", "ai c2", "tool c2", "ai c3", "tool c3", "ai"]


def turns(messages: list[Any]) -> list[str]:
    """Who speaks, with the calls that are made or answered. A chat model wants each call answered before all else."""
    return [
        " ".join([message.type, *(call["id"] for call in getattr(message, "tool_calls", ())), *answers(message)])
        for message in messages
    ]


def answers(message: BaseMessage) -> list[str]:
    return [message.tool_call_id] if isinstance(message, ToolMessage) else []


def test_calls_made_at_once_under_openai_agents_are_answered_one_by_one_under_langchain() -> None:
    with everturn.open("sqlite://") as store:
        asyncio.run(EverturnSession("s", store).add_items(PARALLEL))
        history = EverturnChatMessageHistory("s", store)
        assert turns(history.messages) == IN_TURN
        assert [message.text for message in history.messages if message.type == "tool"] == [
            *("result 1", "result 2", "result 3"),
        ]
        history.add_messages([HumanMessage("Thanks!")])
        items = asyncio.run(EverturnSession("s", store).get_items())
        assert items == [*PARALLEL, {"role": "user", "content": "Thanks!"}]


def test_calls_made_at_once_under_openai_agents_are_answered_one_by_one_under_langgraph() -> None:
    def bot(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state['messages'])} so far", id=f"a{len(state['messages'])}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    config: Any = {"configurable": {"thread_id": "s"}}
    with everturn.open("sqlite://") as store:
        session = EverturnSession("s", store)
        asyncio.run(session.add_items(PARALLEL))
        past = to_langchain(store.get_history("s"))
        assert turns(list(past)) == IN_TURN
        builder.compile(checkpointer=EverturnSaver(store)).invoke(
            {"messages": [*past, HumanMessage("Thanks!")]}, config
        )
        again = builder.compile(checkpointer=EverturnSaver(store))  # which remembers nothing
        assert turns(again.get_state(config).values["messages"]) == [*IN_TURN, "human", "ai"]
        items = asyncio.run(session.get_items())
        assert items[: len(PARALLEL)] == PARALLEL  # none of it is written again, and none has moved
        assert [item["content"] for item in items[len(PARALLEL) :]] == ["Thanks!", "11 so far"]
        asyncio.run(session.add_items([function_call(4), function_call(5), output(4), output(5)]))
        more = to_langchain(store.get_history("s")[-4:])
        state = again.invoke({"messages": [*more, HumanMessage("And now?")]}, config)
        assert turns(state["messages"])[12:] == ["ai c4", "tool c4", "ai c5", "tool c5", "human", "ai"]
        assert [message.text for message in store.get_history("s")][-2:] == ["And now?", "17 so far"]
        assert len(asyncio.run(session.get_items())) == len(PARALLEL) + 8


def test_what_langchain_wrote_is_never_put_in_another_order() -> None:
    said = [
        AIMessage("", tool_calls=[CALL | {"id": "c1"}]),
        AIMessage("", tool_calls=[CALL | {"id": "c2"}]),
        ToolMessage("2", tool_call_id="c2"),
        ToolMessage("1", tool_call_id="c1"),
    ]
    with everturn.open("sqlite://") as store:
        asyncio.run(EverturnSession("s", store).add_items([function_call(1), function_call(2)]))  # never answered
        history = EverturnChatMessageHistory("s", store)
        history.add_messages(said)
        assert history.messages[2:] == said
        assert list(to_langchain(store.get_history("s")))[2:] == [
            message.model_copy(update={"id": f"everturn-{seq}"}) for seq, message in enumerate(said, start=3)
        ]


class Loud(HumanMessage):
    volume: int = 11


def test_what_a_graph_says_with_times_and_decimals_is_read_under_langchain() -> None:
    told = {"at": datetime(2026, 1, 1), "cost": Decimal("0.10"), "run": UUID(int=5)}  # noqa: DTZ001 - as some models do
    builder = StateGraph(MessagesState)
    builder.add_node("bot", lambda _: {"messages": [AIMessage("ok", id="a1", response_metadata=told)]})
    builder.add_edge(START, "bot")
    with everturn.open("sqlite://") as store:
        graph = builder.compile(checkpointer=EverturnSaver(store))
        config: Any = {"configurable": {"thread_id": "s"}}
        graph.invoke({"messages": [HumanMessage("hi", id="h1")]}, config)
        said = [HumanMessage("hi", id="h1"), AIMessage("ok", id="a1", response_metadata=told)]
        assert EverturnChatMessageHistory("s", store).messages == said
        assert list(to_langchain(store.get_history("s"))) == said
        assert builder.compile(checkpointer=EverturnSaver(store)).get_state(config).values["messages"] == said


def test_a_message_of_a_class_that_was_allowed_is_read_where_it_is_allowed() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("bot", lambda _: {"messages": [AIMessage("ok", id="a1")]})
    builder.add_edge(START, "bot")
    with everturn.open("sqlite://") as store:
        graph = builder.compile(checkpointer=EverturnSaver(store, allow=[Loud]))
        graph.invoke({"messages": [Loud("HI", id="h1")]}, {"configurable": {"thread_id": "s"}})
        history = store.get_history("s")
        with pytest.raises(Unsupported, match=rf"message {history[0].seq} cannot be read: .*Loud.*allow="):
            to_langchain(history)
        assert list(to_langchain(history, allow=[Loud])) == [Loud("HI", id="h1"), AIMessage("ok", id="a1")]


def test_a_thread_is_not_touched_when_openai_agents_takes_back_what_it_said(store: MemoryStore) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("bot", lambda _: {"messages": [AIMessage("You are welcome.", id="a1")]})
    builder.add_edge(START, "bot")
    graph = builder.compile(checkpointer=EverturnSaver(store))
    config: Any = {"configurable": {"thread_id": "s"}}
    graph.invoke({"messages": [*to_langchain(store.get_history("s")), HumanMessage("Thanks!", id="h1")]}, config)
    before = graph.get_state(config)
    session = EverturnSession("s", store)
    asyncio.run(session.add_items([{"role": "user", "content": "One more."}]))
    assert asyncio.run(session.pop_item()) == {"role": "user", "content": "One more."}
    with pytest.raises(Unsupported, match=r"lg\.put"):
        asyncio.run(session.pop_item())
    assert builder.compile(checkpointer=EverturnSaver(store)).get_state(config) == before


def test_openai_agents_under_llama_index(store: MemoryStore) -> None:
    chat = EverturnChatStore(store)
    read = chat.get_messages("s")
    assert [(message.role.value, message.blocks) for message in read] == [
        ("developer", [llama.TextBlock(text="Be brief.")]),
        ("user", [llama.TextBlock(text="Where is it?"), llama.ImageBlock(url=IMAGE)]),
        ("assistant", [llama.ThinkingBlock(content="I should look it up.")]),
        ("assistant", [llama.ToolCallBlock(tool_call_id="c1", tool_name="track", tool_kwargs={"order": 1234})]),
        ("tool", [llama.TextBlock(text="in Bern")]),
        ("assistant", []),
        ("assistant", [llama.TextBlock(text="It is in Bern.")]),
    ]
    kwargs = [message.additional_kwargs for message in read]
    assert kwargs == [{}, {}, {}, {}, {"tool_call_id": "c1"}, {"role": "web_search_call"}, {}]
    chat.add_message("s", llama.ChatMessage("Thanks!"))
    items = asyncio.run(EverturnSession("s", store).get_items())
    assert items == [*ITEMS, {"role": "user", "content": "Thanks!"}]


SAID: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "Where is it?"}, {"type": "image_url", "image_url": {"url": IMAGE}}]),
    AIMessage("Wait.", tool_calls=[CALL | {"id": "c1"}, CALL | {"id": "c2"}]),
    ToolMessage("in Bern", tool_call_id="c1"),
    AIMessage("It is in Bern.", id="a1", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
]


def test_langchain_under_openai_agents_and_llama_index() -> None:
    with everturn.open("sqlite://") as store:
        EverturnChatMessageHistory("s", store).add_messages(SAID)
        items = asyncio.run(EverturnSession("s", store).get_items())
        assert [item.get("type", item.get("role")) for item in items] == [
            *("system", "user", "assistant", "function_call", "function_call", "function_call_output", "assistant"),
        ]
        assert [item.get("call_id") for item in items[3:6]] == ["c1", "c2", "c1"]
        read = EverturnChatStore(store).get_messages("s")
        assert [message.role.value for message in read] == ["system", "user", "assistant", "tool", "assistant"]
        assert [type(block) for block in read[2].blocks] == [llama.TextBlock, llama.ToolCallBlock, llama.ToolCallBlock]
        assert read[1].blocks[1] == llama.ImageBlock(url=IMAGE)
        assert EverturnChatMessageHistory("s", store).messages == SAID


def test_what_llama_index_has_no_block_for_is_kept_beside_the_blocks() -> None:
    parts: list[Any] = ["one", {"type": "text", "text": "two"}, {"type": "image_url", "image_url": "no url"}, 3]
    with everturn.open("sqlite://") as store:
        store.add_messages("s", [{"role": "user", "content": parts}])
        [read] = EverturnChatStore(store).get_messages("s")
        assert read == llama.ChatMessage([*map(_text, ("one", "two"))], additional_kwargs={"parts": parts})


def _text(text: str) -> llama.TextBlock:
    return llama.TextBlock(text=text)


def test_llama_index_under_openai_agents_and_langchain() -> None:
    call = llama.ToolCallBlock(tool_call_id="c1", tool_name="track", tool_kwargs={"order": 1234})
    said = [
        llama.ChatMessage("Where is it?"),
        llama.ChatMessage([llama.TextBlock(text="Wait."), call], role="assistant"),
        llama.ChatMessage("in Bern", role="tool", additional_kwargs={"tool_call_id": "c1", "name": "track"}),
    ]
    with everturn.open("sqlite://") as store:
        EverturnChatStore(store).set_messages("s", said)
        read: list[Any] = EverturnChatMessageHistory("s", store).messages
        assert read == [
            HumanMessage("Where is it?"),
            AIMessage("Wait.", tool_calls=[CALL]),
            ToolMessage("in Bern", tool_call_id="c1", name="track"),
        ]
        items = asyncio.run(EverturnSession("s", store).get_items())
        assert items[2] == {"type": "function_call", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'}
        assert items[3] == {"type": "function_call_output", "call_id": "c1", "output": "in Bern"}
