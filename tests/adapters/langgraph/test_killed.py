"""Deletions, copies and runs whose process is killed (kill -9) in the middle, and what the next call finds and does.

A thread with a subgraph is two sessions, and its deletion or copy takes a step for each, and for a mark.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

import everturn
from everturn import MemoryStore
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.scenarios import CONFIG, _with_subgraph, chat, say
from tests.integration.children import children

WRITES = ("append", "erase", "fork")  # what a deletion or a copy does to a store
STEPS = 4  # of each: the mark, the thread, its subgraph, and the mark again
COPY: Any = {"configurable": {"thread_id": "b"}}
INPUT = {"steps": [], "last": 1}


def upkeep(url: str, until: str, method: str, *threads: str) -> None:
    """Delete or copy a thread, in a process of its own. It waits to be killed in front of a step, counted from 1."""
    done: list[str] = []

    def watched(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            if len(done) + 1 == int(until):
                print("in front of step", until, flush=True)
                sys.stdin.readline()
            done.append(name)
            return write(*args, **options)

        return step

    with everturn.open(url) as store:
        for name in WRITES:
            setattr(store, name, watched(name, getattr(store, name)))
        getattr(EverturnSaver(store), method)(*threads)
    print("finished after", len(done), flush=True)


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a thread that has a subgraph, and another thread."""
    path = tmp_path_factory.mktemp("thread") / "memory.db"
    with everturn.open(f"sqlite:///{path}") as store:
        _with_subgraph(EverturnSaver(store), checkpointer=True).invoke(INPUT, CONFIG)
        chat(EverturnSaver(store)).invoke(say("other"), {"configurable": {"thread_id": "ab"}})
        assert names(store) == {"a", "a#sub", "ab"}
    return path


@pytest.fixture(scope="module")
def deletions(thread: Path, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """The file that each kill left: in front of the first step of a deletion, of the next, and so on."""
    return killed(thread, tmp_path_factory.mktemp("deletions"), "delete_thread", "a")


@pytest.fixture(scope="module")
def copies(thread: Path, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """The file that each kill left: in front of the first step of a copy, of the next, and so on."""
    return killed(thread, tmp_path_factory.mktemp("copies"), "copy_thread", "a", "b")


def killed(thread: Path, folder: Path, method: str, *threads: str) -> Sequence[Path]:
    """Let processes begin the same, each on a file of its own, and kill each in front of another step."""
    paths = {step: folder / f"{step}.db" for step in range(1, STEPS + 2)}
    for path in paths.values():
        shutil.copy(thread, path)
    with children(
        *((upkeep, f"sqlite:///{path}", step, method, *threads) for step, path in paths.items())
    ) as processes:
        *stopped, finished = processes
        for step, process in enumerate(stopped, start=1):
            assert process.line() == f"in front of step {step}"
            process.kill_all()
            assert process.returncode == -signal.SIGKILL
        assert finished.line() == f"finished after {STEPS}"
    return [paths[step] for step in range(1, STEPS + 1)]


def opened(paths: Sequence[Path], tmp_path: Path) -> Iterator[MemoryStore]:
    """A store on a copy of each file, with what was still to be written back."""
    for path in paths:
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, tmp_path / file.name)
        with everturn.open(f"sqlite:///{tmp_path / path.name}") as store:
            yield store
            assert store.verify().ok


def names(store: MemoryStore) -> set[str]:
    return {session.session_id for session in store.sessions().sessions}


@contextmanager
def unchanged(store: MemoryStore, *sessions: str) -> Iterator[None]:
    before = [store.state(name) for name in sessions]
    yield
    assert [store.state(name) for name in sessions] == before


def test_a_deletion_that_was_killed_is_finished_by_the_next(deletions: Sequence[Path], tmp_path: Path) -> None:
    left = []
    for store in opened(deletions, tmp_path):
        left.append(names(store) - {"ab"})
        with unchanged(store, "ab"):
            EverturnSaver(store).delete_thread("a")
        assert names(store) == {"ab"}
    mark = "a#|unfinished"
    assert left == [{"a", "a#sub"}, {"a", "a#sub", mark}, {"a#sub", mark}, {mark}]


def test_a_run_behind_a_deletion_that_was_killed_finds_all_or_nothing(
    deletions: Sequence[Path], tmp_path: Path
) -> None:
    """Where the thread is left, it goes on with its subgraph; where it has gone, so has its subgraph's memory."""
    with everturn.open("sqlite://") as fresh:
        graph = _with_subgraph(EverturnSaver(fresh), checkpointer=True)
        first, second = graph.invoke(INPUT, CONFIG), graph.invoke(INPUT, CONFIG)
    assert first != second
    results = []
    for store in opened(deletions, tmp_path):
        with unchanged(store, "ab"):
            results.append(_with_subgraph(EverturnSaver(store), checkpointer=True).invoke(INPUT, CONFIG))
    assert results == [second, second, first, first]


@pytest.mark.parametrize("looked", [False, True])
def test_a_copy_that_was_killed_is_made_by_the_next(copies: Sequence[Path], tmp_path: Path, looked: bool) -> None:
    found = []
    for store in opened(copies, tmp_path):
        saver = EverturnSaver(store)
        found.append("b" in names(store))
        with unchanged(store, "a", "a#sub", "ab"):
            if looked:
                assert (saver.get_tuple(COPY) is not None) == found[-1]
            if looked and not found[-1]:
                assert names(store) == {"a", "a#sub", "ab"}  # to look was enough: nothing is left of it
            if not found[-1]:
                saver.copy_thread("a", "b")
            graph = _with_subgraph(saver, checkpointer=True)
            assert graph.get_state(COPY).values == graph.get_state(CONFIG).values
            assert store.get_history("b#sub") == store.get_history("a#sub")
            assert len([*saver.list({"configurable": {"thread_id": "b", "checkpoint_ns": "sub"}})]) > 0
            saver.delete_thread("b")
        assert names(store) == {"a", "a#sub", "ab"}
    assert found == [False, False, False, True]


# --- a run -----------------------------------------------------------------------------------------------------------


def with_tool(saver: EverturnSaver, tool: Callable[[], None]) -> Any:
    """A graph whose model calls a tool."""

    def tools(_state: MessagesState) -> Any:
        tool()
        return {"messages": [AIMessage("result")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _state: {"messages": [AIMessage("call")]})
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(checkpointer=saver)


def run_into_the_tool(url: str, durability: Any) -> None:
    """Run a graph, in a process of its own that waits in the tool to be killed."""

    def tool() -> None:
        print("in the tool", flush=True)
        sys.stdin.readline()

    with everturn.open(url) as store:
        with_tool(EverturnSaver(store), tool).invoke(say("question"), CONFIG, durability=durability)


def test_what_a_kill_in_a_tool_leaves_is_what_the_durability_says(tmp_path: Path) -> None:
    left: dict[str, list[list[str]]] = {
        "sync": [["question", "call"]],
        "async": [[], ["question"], ["question", "call"]],  # the writer may be behind by any number of steps
        "exit": [[]],
    }
    urls = {durability: f"sqlite:///{tmp_path / durability}.db" for durability in left}
    with children(*((run_into_the_tool, url, durability) for durability, url in urls.items())) as processes:
        for process in processes:
            assert process.line() == "in the tool"
            process.kill_all()
            assert process.returncode == -signal.SIGKILL
    for durability, url in urls.items():
        with everturn.open(url) as store:
            graph = with_tool(EverturnSaver(store), lambda: None)
            state = graph.get_state(CONFIG)
            assert [message.text for message in state.values.get("messages", [])] in left[durability]
            # Not `state.next`: that leaves out a step whose writes are stored, and whose checkpoint is not.
            done = graph.invoke(None if state.tasks else say("question"), CONFIG)
            assert [message.text for message in done["messages"]] == ["question", "call", "result"]
            assert store.verify().ok
