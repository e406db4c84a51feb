"""Two runs in one thread at the same time: one of them is told, and nothing that was acknowledged is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import everturn
from everturn import MemoryStore, VersionConflict
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph import worker
from tests.adapters.langgraph.conftest import StoreUnderTest
from tests.adapters.langgraph.scenarios import CONFIG, chat, say
from tests.integration.children import children
from tests.tiers import deep


class Meeting(EverturnSaver):
    """Runs that are to meet have all read before any of them writes."""

    barrier: Barrier | None = None

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if self.barrier is not None:
            self.barrier.wait(timeout=60)
        return found


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each call returned or raised."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except VersionConflict as exc:
            return exc

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def texts(graph: Any) -> list[str]:
    return [message.text for message in graph.get_state(CONFIG).values["messages"]]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("shared", [True, False], ids=["one-saver", "two-savers"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "new"])
def test_of_two_runs_at_once_the_second_is_told(store: MemoryStore, durability: Any, shared: bool, begun: bool) -> None:
    if begun:
        chat(EverturnSaver(store)).invoke(say("zero"), CONFIG)
    first = Meeting(store)
    second = first if shared else Meeting(store)
    first.barrier = second.barrier = Barrier(2)
    outcomes = together(
        lambda: chat(first).invoke(say("left"), CONFIG, durability=durability),
        lambda: chat(second).invoke(say("right"), CONFIG, durability=durability),
    )
    conflicts = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
    assert len(conflicts) == 1
    assert "thread 'a'" in str(conflicts[0])
    assert "last_wins" in str(conflicts[0])
    winner = "right" if outcomes[0] is conflicts[0] else "left"
    said = ["zero", "answer to zero"] * begun + [winner, f"answer to {winner}"]
    assert texts(chat(EverturnSaver(store))) == said
    assert [message.text for message in store.get_history("a")] == said


def test_the_last_wins_where_that_is_wanted(store: MemoryStore) -> None:
    saver = Meeting(store, on_conflict="last_wins")
    saver.barrier = Barrier(2)
    graph = chat(saver)
    outcomes = together(lambda: graph.invoke(say("left"), CONFIG), lambda: graph.invoke(say("right"), CONFIG))
    saver.barrier = None
    assert not any(isinstance(outcome, VersionConflict) for outcome in outcomes)
    said = texts(graph)
    assert said in (["left", "answer to left"], ["right", "answer to right"])
    assert [message.text for message in store.get_history("a")] == said
    values = [state.values.get("messages", []) for state in graph.get_state_history(CONFIG)]
    assert {message.text for messages in values for message in messages} == {
        "left",
        "answer to left",
        "right",
        "answer to right",
    }


def test_of_two_who_resume_one_interrupt_the_second_is_told(store: MemoryStore) -> None:
    barrier = Barrier(2)

    def ask(_state: MessagesState) -> Any:
        answer = interrupt("sure?")
        barrier.wait(timeout=60)
        return {"messages": [AIMessage(answer)]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=EverturnSaver(store))
    graph.invoke(say("hi"), CONFIG)
    outcomes = together(
        lambda: graph.invoke(Command(resume="yes"), CONFIG), lambda: graph.invoke(Command(resume="no"), CONFIG)
    )
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 1
    assert len(texts(graph)) == 2


def test_two_updates_by_hand_do_not_pass_each_other(store: MemoryStore) -> None:
    graph = chat(EverturnSaver(store))
    graph.invoke(say("zero"), CONFIG)
    stale = graph.checkpointer.get_tuple(CONFIG)
    graph.invoke(say("one"), CONFIG)
    with pytest.raises(VersionConflict):
        graph.checkpointer.put(stale.config, {**stale.checkpoint, "id": "x"}, {"source": "update", "step": 9}, {})


def test_to_go_back_is_no_conflict_but_to_be_overtaken_on_the_way_is(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = chat(saver)
    for text in ("one", "two"):
        graph.invoke(say(text), CONFIG)
    first = [state for state in graph.get_state_history(CONFIG) if state.values.get("messages")][-1]
    chosen = saver.get_tuple(first.config)
    assert chosen is not None
    graph.invoke(say("three"), CONFIG)  # after it chose to go back
    with pytest.raises(VersionConflict):
        saver.put(chosen.config, {**chosen.checkpoint, "id": "x"}, {"source": "fork", "step": 9}, {})
    graph.invoke(None, first.config)  # chooses now
    assert texts(graph) == ["one", "answer to one"]


def test_a_run_in_a_thread_that_was_deleted_is_told(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = chat(saver)
    graph.invoke(say("one"), CONFIG)
    read = saver.get_tuple(CONFIG)
    assert read is not None
    saver.delete_thread("a")
    with pytest.raises(VersionConflict, match="nothing is stored under this name"):
        saver.put(read.config, {**read.checkpoint, "id": "x"}, {"source": "loop", "step": 9}, {})
    assert store.get_history("a") == []


@pytest.mark.parametrize(
    ("name", "durability"), [("sqlite", "async"), deep(("sqlite", "exit")), ("valkey", "async"), ("postgres", "exit")]
)
def test_processes_in_one_thread_lose_nothing(
    make_backend: Callable[[str], StoreUnderTest], name: str, durability: str
) -> None:
    url = make_backend(name).own_url
    told = talk(url, ["a", "b", "c"], turns=3, durability=durability)
    acknowledged = [text for each in told for text in each["acknowledged"]]
    assert len(acknowledged) == 9
    with everturn.open(url) as store:
        said = texts(chat(EverturnSaver(store)))
        pairs = list(pairwise(said))
        assert all(pairs.count((text, f"answer to {text}")) == 1 for text in acknowledged)
        if durability == "exit":  # a run is one turn: of those that were told to try again, nothing is there
            assert len(said) == 2 * len(acknowledged)
        assert [message.text for message in store.get_history("a")] == said
        assert store.verify().ok
    assert sum(each["conflicts"] for each in told) > 0, "they never met: this shows nothing"


def talk(url: str, names: list[str], *, turns: int, durability: str) -> list[dict[str, Any]]:
    """Let processes talk in one thread, all at once. Returns what each told."""
    with children(*((worker.main, url, name, turns, durability) for name in names)) as processes:
        for process in processes:
            assert process.line() == "ready"
        for process in processes:
            process.stdin.write("go\n")
        return [json.loads(process.finished()) for process in processes]
