"""A thread is the session of its name: its messages are there to read, to roll back, and to go on with elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStore, Record
from everturn.adapters.langgraph import EverturnSaver, session_of, thread_of, to_langchain
from everturn.adapters.openai_agents import EverturnSession
from tests.adapters.checking import shows
from tests.adapters.langgraph.scenarios import CONFIG, SCENES, _with_subgraph, chat, say


def shown(store: MemoryStore, session_id: str = "a") -> list[str]:
    return [message.text for message in store.get_history(session_id)]


def texts(graph: Any) -> list[str]:
    return [message.text for message in graph.get_state(CONFIG).values["messages"]]


def test_the_history_of_a_thread_is_what_was_said_in_it(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("one"), CONFIG)
    graph.invoke(say("two"), CONFIG)
    assert [(message.role, message.text) for message in store.get_history("a")] == [
        ("user", "one"),
        ("assistant", "answer to one"),
        ("user", "two"),
        ("assistant", "answer to two"),
    ]
    assert store.load_memory("a")[1] == {"human": "two", "ai": "answer to two"}
    assert {entry.kind for entry in store.state("a").records} == {"lg.put", "lg.writes"}


def test_a_thread_shows_what_was_said_and_its_checkpoints_in_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store:
        graph = chat(EverturnSaver(store))
        for text in ("one", "two"):
            graph.invoke(say(text), CONFIG)
        two, *_, one = [state for state in graph.get_state_history(CONFIG) if len(state.values["messages"]) in (2, 4)]
        graph.invoke(None, one.config)
        call = {"name": "track", "args": {"order": 1}, "id": "c1"}
        graph.update_state(CONFIG, {"messages": [AIMessage("", tool_calls=[call])]}, as_node="bot")
    first, last = (state.config["configurable"]["checkpoint_id"] for state in (one, two))
    left = ["LangGraph task wrote messages", f"LangGraph checkpoint {last}"]
    shows(
        url,
        "a",
        "user      one",
        "assistant answer to one",
        f"LangGraph checkpoint {first}",
        *left,
        "-> track(",
    )
    shows(
        url,
        "a",
        "record    LangGraph branch that was left, user: two",
        "branch that was left, assistant: answer to two",
    )


def test_tool_calls_are_where_every_reader_looks_for_them(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    call = {"name": "track", "args": {"order": 1}, "id": "c1"}
    said = [AIMessage("", tool_calls=[call]), ToolMessage("in Bern", tool_call_id="c1")]
    graph.update_state(CONFIG, {"messages": said}, as_node="bot")
    calling, answer = store.get_history("a", heal=True)  # heal would add a result if it did not see the one there is
    assert calling.tool_calls == [
        {"id": "c1", "type": "function", "function": {"name": "track", "arguments": '{"order": 1}'}}
    ]
    assert (answer.role, answer.tool_call_id, answer.content) == ("tool", "c1", "in Bern")


def test_time_travel_takes_what_was_said_since_out_of_the_history(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    for text in ("one", "two", "three"):
        graph.invoke(say(text), CONFIG)
    after_one = next(state for state in graph.get_state_history(CONFIG) if len(state.values["messages"]) == 2)
    graph.invoke(say("instead"), after_one.config)
    assert shown(store) == texts(graph) == ["one", "answer to one", "instead", "answer to instead"]
    latest = next(state for state in graph.get_state_history(CONFIG) if len(state.values["messages"]) == 6)
    graph.invoke(say("back"), latest.config)
    assert shown(store) == texts(graph)
    assert texts(graph)[4:] == ["three", "answer to three", "back", "answer to back"]


def test_what_is_removed_from_the_state_was_said_all_the_same(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("one"), CONFIG)
    first = graph.get_state(CONFIG).values["messages"][0]
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id=first.id)]}, as_node="bot")
    graph.invoke(say("two"), CONFIG)
    assert texts(graph) == ["answer to one", "two", "answer to two"]
    assert shown(store) == ["one", "answer to one", "two", "answer to two"]


def test_a_rollback_of_the_session_takes_the_thread_along(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("one"), CONFIG)
    snapshot = store.save_snapshot("a", "before")
    graph.invoke(say("two"), CONFIG)
    store.rollback_to_snapshot("a", snapshot)
    assert texts(graph) == shown(store) == ["one", "answer to one"]
    graph.invoke(say("three"), CONFIG)
    assert texts(graph) == shown(store) == ["one", "answer to one", "three", "answer to three"]
    store.clear("a")
    assert graph.get_state(CONFIG).values == {}
    store.undo("a")
    assert texts(graph) == ["one", "answer to one", "three", "answer to three"]


def test_a_session_that_was_erased_is_a_thread_that_never_was(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("one"), CONFIG)
    store.erase("a")
    graph.invoke(say("two"), CONFIG)
    assert texts(graph) == shown(store) == ["two", "answer to two"]


def test_a_thread_whose_messages_were_trimmed_says_so(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    for number in range(4):
        graph.invoke(say(str(number)), CONFIG)
    store.trim("a", max_messages=2)
    with pytest.raises(CorruptEntry, match=r"hidden by a trim \(undo it\)"):
        graph.get_state(CONFIG)
    store.undo("a")
    assert len(texts(graph)) == 8


def test_what_others_say_in_the_session_is_not_the_threads(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("one"), CONFIG)
    store.append("a", [ChatMessage("user", "by hand"), Record("mine", {"x": 1})])
    graph.invoke(say("two"), CONFIG)
    assert texts(graph) == ["one", "answer to one", "two", "answer to two"]
    assert shown(store) == ["one", "answer to one", "by hand", "two", "answer to two"]


def test_a_conversation_begun_under_openai_agents_goes_on_in_a_graph(store: MemoryStore) -> None:
    async def begin() -> None:
        session = EverturnSession("a", store)
        await session.add_items([{"role": "user", "content": "Where is order 1234?"}])
        await session.add_items(
            [
                {"type": "function_call", "id": "f1", "call_id": "c1", "name": "track", "arguments": '{"order": 1234}'},
                {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "It is in Bern."}], "id": "m1"},
            ]
        )

    asyncio.run(begin())
    before = store.get_history("a")
    said = to_langchain(before)
    assert [type(message).__name__ for message in said] == ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage"]
    assert said[1].tool_calls == [{"name": "track", "args": {"order": 1234}, "id": "c1", "type": "tool_call"}]  # type: ignore[attr-defined]
    graph = chat(EverturnSaver(store))
    graph.invoke({"messages": [*said, HumanMessage("Thanks!")]}, CONFIG)
    assert texts(graph)[-2:] == ["Thanks!", "answer to Thanks!"]
    assert len(texts(graph)) == 6
    assert store.get_history("a")[:4] == before
    assert len(store.get_history("a")) == 6  # none of them twice

    async def go_on() -> list[Any]:
        session = EverturnSession("a", store)
        await session.add_items([{"role": "user", "content": "Back here."}])
        return await session.get_items()

    assert [item.get("content") for item in asyncio.run(go_on())][-3:] == ["Thanks!", "answer to Thanks!", "Back here."]
    graph.invoke({"messages": [*to_langchain(store.get_history("a")[-1:]), HumanMessage("And there.")]}, CONFIG)
    assert shown(store)[6:] == texts(graph)[6:] == ["Back here.", "And there.", "answer to And there."]


def test_a_subgraph_has_a_session_of_its_own(store: MemoryStore) -> None:
    graph = _with_subgraph(EverturnSaver(store), checkpointer=True)
    graph.invoke({"steps": [], "last": 1}, CONFIG)
    assert [session.session_id for session in store.sessions().sessions] == ["a", "a#sub"]


@pytest.mark.parametrize("thread", ["plain", "with/slash", "a#b", "a%23b", "100%", "#", "ünïcode", "a b"])
@pytest.mark.parametrize("namespace", ["", "child:1", "a#b|c:2"])
def test_a_thread_and_namespace_have_a_session_that_no_other_has(thread: str, namespace: str) -> None:
    assert thread_of(session_of(thread, namespace)) == (thread, namespace)


def test_threads_with_such_names_do_not_meet(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    for thread in ("a", "a#b", "a%23b"):
        chat(saver).invoke(say(thread), {"configurable": {"thread_id": thread}})
    found = {
        (each.config["configurable"]["thread_id"], each.config["configurable"]["checkpoint_ns"])
        for each in saver.list(None)
    }
    assert found == {("a", ""), ("a#b", ""), ("a%23b", "")}
    saver.delete_thread("a")
    assert shown(store, session_of("a#b")) == ["a#b", "answer to a#b"]


@pytest.mark.parametrize("name", ["a_conversation", "time_travel", "messages_are_edited_and_removed"])
def test_what_graphs_leave_can_be_verified_and_copied(store: MemoryStore, name: str) -> None:
    SCENES[name](EverturnSaver(store))
    store.fork("a", "b")
    assert shown(store, "b") == shown(store)
    copied = chat(EverturnSaver(store)).get_state({"configurable": {"thread_id": "b"}})
    assert [message.text for message in copied.values["messages"]] == texts(chat(EverturnSaver(store)))
    assert store.verify().ok
