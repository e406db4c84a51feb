"""A checkpoint stores what changed: bytes on disk grow with what was said, and with nothing else."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

import everturn
from everturn import MemoryStore
from everturn.adapters.langgraph import EverturnSaver, to_langchain
from tests.adapters.langgraph.scenarios import CONFIG
from tests.adapters.langgraph.test_values import checkpoint

WORDS = ("order", "ticket", "please", "number", "refund", "agent", "status", "shipping", "today", "customer")


def words(seed: int, length: int = 200) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(length))[:length]


def test_a_thousand_messages_in_five_hundred_turns_of_a_real_graph(tmp_path: Path) -> None:
    def bot(state: MessagesState) -> Any:
        return {"messages": [AIMessage(words(len(state["messages"])))]}

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    builder.add_edge("bot", END)
    url = f"sqlite:///{tmp_path}/memory.db?synchronous=normal"
    with everturn.open(url) as store:
        graph = builder.compile(checkpointer=EverturnSaver(store))
        for turn in range(500):
            graph.invoke({"messages": [HumanMessage(words(-turn))]}, CONFIG, durability="sync")
        messages = graph.get_state(CONFIG).values["messages"]
        assert len(messages) == len(store.get_history("a")) == 1000
    serialized = sum(len(JsonPlusSerializer().dumps_typed(message)[1]) for message in messages)
    stored = sum(file.stat().st_size for file in tmp_path.iterdir())
    # 4.35 to 4.37 times. By default checkpoints are put in the background, and the size depends on how busy the machine
    # is: 3.9 to 4.3 times. Ids of 36 characters are a tenth of it.
    assert stored <= 4.4 * serialized, f"{stored:,} bytes for {serialized:,} of messages: {stored / serialized:.2f} x"


def test_a_checkpoint_a_turn_takes_half_of_that(tmp_path: Path) -> None:
    said: list[Any] = []
    with everturn.open(f"sqlite:///{tmp_path}/memory.db?synchronous=normal") as store:
        saver = EverturnSaver(store)
        config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
        for turn in range(500):
            said += [HumanMessage(words(turn), id=f"h{turn}"), AIMessage(words(-turn), id=f"a{turn}")]
            put = checkpoint(f"{turn:04}", messages=list(said))
            put["channel_versions"]["messages"] = turn + 1
            config = saver.put(config, put, {"source": "loop", "step": turn}, {"messages": turn + 1})
    serialized = sum(len(JsonPlusSerializer().dumps_typed(message)[1]) for message in said)
    stored = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert stored <= 2 * serialized, f"{stored / serialized:.2f} x"


def test_a_state_that_is_sent_with_every_tool_call_is_not_written_with_it(store: MemoryStore) -> None:
    """It would make a thread grow with the square of what was said. (Put by hand: in a graph, what a task wrote may
    come after the next checkpoint, and is then written as it is.)"""
    saver = EverturnSaver(store)
    config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
    said: list[Any] = []
    sizes = []
    for turn in range(30):
        said += [HumanMessage(words(turn), id=f"h{turn}"), AIMessage(words(-turn), id=f"a{turn}")]
        sent = [Send("tools", {"call": number, "state": {"messages": list(said)}}) for number in (1, 2)]
        put = checkpoint(f"{turn:04}", messages=list(said), __pregel_tasks=sent)
        put["channel_versions"] = {"messages": turn + 1, "__pregel_tasks": turn + 1}
        config = saver.put(config, put, {"source": "loop", "step": turn}, put["channel_versions"])
        saver.put_writes(config, [("__pregel_tasks", one) for one in sent], f"task {turn}")
        if turn % 10 == 9:
            sizes.append(store.info("a").bytes)
    first, *rest = (after - before for before, after in pairwise([0, *sizes]))
    assert max(rest) < 1.2 * first, sizes


def with_a_subgraph(store: MemoryStore, checkpointer: bool | None) -> Any:
    """A graph whose only node is a graph that is handed all messages. With True that has a memory of its own."""
    inner = StateGraph(MessagesState)
    inner.add_node("bot", lambda state: {"messages": [AIMessage(words(len(state["messages"])))]})
    inner.add_edge(START, "bot")
    outer = StateGraph(MessagesState)
    outer.add_node("sub", inner.compile(checkpointer=checkpointer))
    outer.add_edge(START, "sub")
    return outer.compile(checkpointer=EverturnSaver(store))


def test_a_subgraph_with_a_memory_of_its_own_grows_with_what_was_said(store: MemoryStore) -> None:
    graph = with_a_subgraph(store, True)
    sizes: dict[str, list[int]] = {"a": [], "a#sub": []}
    for turn in range(30):
        graph.invoke({"messages": [HumanMessage(words(-turn))]}, CONFIG)
        for session_id, measured in sizes.items():
            measured.append(store.info(session_id).bytes)
    for measured in sizes.values():
        first, *rest = (after - before for before, after in pairwise([0, *measured[9::10]]))
        assert max(rest) < 1.2 * first, sizes
    assert [len(store.get_history(session_id)) for session_id in sizes] == [60, 60]


def test_a_subgraph_of_one_run_writes_what_it_is_given_once(store: MemoryStore) -> None:
    graph = with_a_subgraph(store, None)
    parent = []
    for turn in range(30):
        graph.invoke({"messages": [HumanMessage(words(-turn))]}, CONFIG)
        parent.append(store.info("a").bytes)
    first, *rest = (after - before for before, after in pairwise([0, *parent[9::10]]))
    assert max(rest) < 1.2 * first, parent
    for session in store.sessions("a#", limit=100).sessions:
        messages = store.get_history(session.session_id)
        said = sum(len(JsonPlusSerializer().dumps_typed(message)[1]) for message in to_langchain(messages))
        assert store.info(session.session_id).bytes < said + 3000, f"{len(messages)} messages"


def test_what_a_subgraph_is_given_may_be_longer_than_an_entry() -> None:
    """Each of its messages is one."""
    with everturn.open("sqlite://", max_message_bytes=4000) as store:
        for checkpointer in (None, True):
            graph = with_a_subgraph(store, checkpointer)
            for turn in range(8):
                state = graph.invoke({"messages": [HumanMessage(words(-turn, 1000))]}, CONFIG)
            assert len(state["messages"]) == 16
            graph.checkpointer.delete_thread("a")


class Notes(TypedDict):
    notes: Annotated[list[Any], lambda left, right: left + right]
    doc: str
    number: int


@pytest.mark.parametrize("channel", ["notes", "doc"])
def test_lists_that_grow_and_values_that_stay_are_not_written_again(store: MemoryStore, channel: str) -> None:
    builder = StateGraph(Notes)
    new: dict[str, Any] = {"notes": {"notes": [{"text": words(1)}]}, "doc": {}}
    builder.add_node("work", lambda state: {"number": state["number"] + 1, **new[channel]})
    builder.add_edge(START, "work")
    graph = builder.compile(checkpointer=EverturnSaver(store))
    graph.invoke({"number": 0, "notes": [words(2, 5000)] * 4, "doc": words(3, 20_000)}, CONFIG)
    before = store.info("a").bytes
    for number in range(20):
        graph.invoke({"number": number}, CONFIG)
    assert store.info("a").bytes - before < 20 * 2500
    state = EverturnSaver(store).get_tuple(CONFIG)
    assert state is not None
    assert len(state.checkpoint["channel_values"]["notes"]) == 4 + (21 if channel == "notes" else 0)
    assert state.checkpoint["channel_values"]["doc"] == words(3, 20_000)


def test_branches_cost_what_they_say(store: MemoryStore) -> None:
    """Each fork moves what was said since; it does not move what earlier forks left."""

    def bot(_state: MessagesState) -> Any:
        return {"messages": [AIMessage(words(1))]}

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    graph = builder.compile(checkpointer=EverturnSaver(store))
    graph.invoke({"messages": [HumanMessage("root")]}, CONFIG)
    root = graph.get_state(CONFIG).config
    sizes = []
    for number in range(24):
        graph.invoke({"messages": [HumanMessage(f"branch {number}")]}, root)
        sizes.append(store.info("a").last_seq)
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    assert max(steps[12:]) <= max(steps[:12]) + 2
    assert len(list(graph.get_state_history(CONFIG))) == 3 + 24 * 3
