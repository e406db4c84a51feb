"""What is deleted is gone: from the thread, from the history, and from the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

import everturn
from everturn import InvalidInput, MemoryStore
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.conftest import StoreUnderTest
from tests.adapters.langgraph.scenarios import CONFIG, _appended, _with_subgraph, chat, say


def in_run(name: str) -> Any:
    return {**CONFIG, "metadata": {"run_id": name}}


def test_a_deleted_thread_is_erased_with_its_subgraphs(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    _with_subgraph(saver, checkpointer=True).invoke({"steps": [], "last": 1}, CONFIG)
    chat(saver).invoke(say("other"), {"configurable": {"thread_id": "ab"}})
    saver.delete_thread("a")
    assert [session.session_id for session in store.sessions().sessions] == ["ab"]
    saver.delete_thread("never was")


class CutOff(Exception):
    """In place of kill -9: nothing of ours runs after it."""


@pytest.mark.parametrize("cut_at", [1, 2])  # behind the thread itself; behind its first subgraph
def test_a_deletion_that_is_cut_off_is_finished_by_the_next_run(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    saver = EverturnSaver(store)
    _with_subgraph(saver, checkpointer=True).invoke({"steps": [], "last": 1}, CONFIG)
    erase, erased = store.erase, []

    def erase_some(session_id: str) -> Any:
        if len(erased) == cut_at:
            raise CutOff
        erased.append(session_id)
        return erase(session_id)

    with monkeypatch.context() as patch:
        patch.setattr(store, "erase", erase_some)
        with pytest.raises(CutOff):
            saver.delete_thread("a")
    assert erased[0] == "a"
    assert store.sessions().sessions != ()
    assert EverturnSaver(store).get_tuple(CONFIG) is None
    assert store.sessions().sessions == ()


def test_a_copy_that_is_cut_off_leaves_no_thread_and_nothing_for_a_later_run(
    store: MemoryStore, monkeypatch: Any
) -> None:
    saver = EverturnSaver(store)
    _with_subgraph(saver, checkpointer=True).invoke({"steps": [], "last": 1}, CONFIG)
    fork, forked = store.fork, []

    def fork_some(*names: str) -> Any:
        if forked:
            raise CutOff
        forked.append(names)
        return fork(*names)

    with monkeypatch.context() as patch:
        patch.setattr(store, "fork", fork_some)
        with pytest.raises(CutOff):
            saver.copy_thread("a", "b")
    assert saver.get_tuple({"configurable": {"thread_id": "b"}}) is None
    assert store.sessions("b").sessions == ()
    saver.copy_thread("a", "b")
    names = {session.session_id for session in store.sessions().sessions}
    assert {name.replace("a", "b", 1) for name in names if name.startswith("a")} == {
        n for n in names if n.startswith("b")
    }


def test_a_pruned_thread_keeps_no_calls_of_subgraphs_that_are_over(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = _with_subgraph(saver)
    graph.invoke({"steps": [], "last": 1}, CONFIG)
    graph.invoke({"steps": [], "last": 1}, CONFIG)
    calls = [session.session_id for session in store.sessions("a#").sessions]
    assert calls
    saver.prune(["a"])
    assert store.sessions("a#").sessions == ()
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.parent_config is None


def test_what_a_run_said_goes_with_it(backend: StoreUnderTest) -> None:
    with backend.open() as store:
        saver = EverturnSaver(store)
        graph = chat(saver)
        graph.invoke(say("kept"), in_run("first"))
        graph.invoke(say("regretted"), in_run("second"))
        store.add_messages("a", [everturn.ChatMessage("user", "by hand")])
        saver.delete_for_runs(["second"])
        assert [message.text for message in store.get_history("a")] == ["kept", "answer to kept", "by hand"]
        assert [message.text for message in graph.get_state(CONFIG).values["messages"]] == ["kept", "answer to kept"]
        assert store.find("regretted", session_id="a") == []
        graph.invoke(say("next"), in_run("third"))
        assert len(graph.get_state(CONFIG).values["messages"]) == 4
        assert store.verify().ok


def test_a_run_that_was_all_there_was_takes_the_session_along(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    chat(saver).invoke(say("only"), in_run("only"))
    saver.delete_for_runs(["only", "never was"])
    assert store.sessions().sessions == ()


def test_the_bytes_of_what_was_deleted_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with everturn.open(f"sqlite:///{path}") as store:
        saver = EverturnSaver(store)
        chat(saver).invoke(say("kept"), in_run("first"))
        chat(saver).invoke(say("the secret word is xyzzy"), in_run("second"))
        saver.delete_for_runs(["second"])
        for _ in range(store.info("a").undo_steps):  # no undo brings it back
            store.undo("a")
            assert "xyzzy" not in str(store.state("a").entries)
    assert b"xyzzy" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_pruning_keeps_the_latest_checkpoint_whole(backend: StoreUnderTest) -> None:
    with backend.open() as store:
        saver = EverturnSaver(store)
        graph = chat(saver)
        for number in range(6):
            graph.invoke(say(str(number)), CONFIG)
        before = saver.get_tuple(CONFIG)
        bytes_before = store.info("a").bytes
        saver.prune(["a"])
        after = saver.get_tuple(CONFIG)
        assert before is not None
        assert after == before._replace(parent_config=None)  # the parent has gone
        assert len(list(saver.list(CONFIG))) == 1
        assert store.info("a").bytes < bytes_before / 2
        assert len(store.get_history("a")) == 12
        graph.invoke(say("on"), CONFIG)
        assert len(graph.get_state(CONFIG).values["messages"]) == 14


class Delta(TypedDict):
    items: Annotated[list[Any], DeltaChannel(_appended, snapshot_frequency=50)]


def delta_graph(saver: Any) -> Any:
    builder = StateGraph(Delta)
    builder.add_node("one", lambda state: {"items": [len(state["items"])]})
    builder.add_edge(START, "one")
    return builder.compile(checkpointer=saver)


def test_pruning_keeps_what_a_delta_channel_is_made_of(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = delta_graph(saver)
    for number in range(4):
        graph.invoke({"items": [f"in {number}"]}, CONFIG)
    before = graph.get_state(CONFIG).values
    saver.prune(["a"])
    assert graph.get_state(CONFIG).values == before
    assert len(before["items"]) == 8


def test_a_run_that_a_delta_channel_needs_is_not_deleted_in_silence(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = delta_graph(saver)
    graph.invoke({"items": ["first"]}, in_run("first"))
    graph.invoke({"items": ["second"]}, in_run("second"))
    with pytest.raises(InvalidInput, match=r"is rebuilt .* from checkpoint"):
        saver.delete_for_runs(["first"])
    assert graph.get_state(CONFIG).values == {"items": ["first", 1, "second", 3]}


def test_a_copy_goes_its_own_way(backend: StoreUnderTest) -> None:
    with backend.open() as store:
        saver = EverturnSaver(store)
        graph = _with_subgraph(saver, checkpointer=True)
        graph.invoke({"steps": [], "last": 1}, CONFIG)
        saver.copy_thread("a", "b")
        copied: Any = {"configurable": {"thread_id": "b"}}
        assert graph.get_state(copied).values == graph.get_state(CONFIG).values
        graph.invoke({"steps": [], "last": 2}, copied)
        assert graph.get_state(copied).values != graph.get_state(CONFIG).values
        with pytest.raises(InvalidInput, match="thread 'b' exists already"):
            saver.copy_thread("a", "b")
        saver.copy_thread("never was", "c")
        assert saver.get_tuple({"configurable": {"thread_id": "c"}}) is None


def test_a_copy_that_was_cut_off_can_be_made_again(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = _with_subgraph(saver, checkpointer=True)
    graph.invoke({"steps": [], "last": 1}, CONFIG)
    store.fork("a#sub", "b#sub")  # and then its process ended
    saver.copy_thread("a", "b")
    assert graph.get_state({"configurable": {"thread_id": "b"}}).values == graph.get_state(CONFIG).values


@pytest.mark.parametrize("looked_before", ["a", "a#sub"])
def test_a_copy_is_whole_though_somebody_looks_for_it_meanwhile(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, looked_before: str
) -> None:
    """Who finds no thread takes its subgraphs for what a copy left that was cut off."""
    saver = EverturnSaver(store)
    graph = _with_subgraph(saver, checkpointer=True)
    graph.invoke({"steps": [], "last": 1}, CONFIG)
    copied: Any = {"configurable": {"thread_id": "b"}}
    fork = store.fork

    def watched(session_id: str, new: str) -> Any:
        if session_id == looked_before:
            assert EverturnSaver(store).get_tuple(copied) is None
        return fork(session_id, new)

    with monkeypatch.context() as patch:
        patch.setattr(store, "fork", watched)
        saver.copy_thread("a", "b")
    assert {session.session_id for session in store.sessions("b").sessions} == {"b", "b#sub"}
    for config in (CONFIG, copied):
        graph.invoke({"steps": [], "last": 2}, config)
    assert graph.get_state(copied).values == graph.get_state(CONFIG).values


def test_to_list_while_others_are_read_and_written_does_not_wait(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = chat(saver)
    for number in range(3):
        graph.invoke(say(str(number)), CONFIG)
    seen = []
    for found in saver.list(CONFIG):
        assert saver.get_tuple(found.config) is not None
        if not seen:
            graph.invoke({"messages": [HumanMessage("meanwhile")]}, CONFIG)
        seen.append(found.checkpoint["id"])
    assert len(seen) == 9
