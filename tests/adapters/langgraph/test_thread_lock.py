"""A put and what tasks wrote, of one run: they wait for each other, and do not meet in the store as strangers would."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from everturn import MemoryStore, Record, VersionConflict
from everturn.adapters.langgraph import EverturnSaver, thread_lock
from everturn.adapters.langgraph.checkpoint_log import EARLIEST
from everturn.adapters.langgraph.thread_lock import ThreadLock
from tests.adapters.langgraph.conftest import StoreUnderTest, WatchedSaver
from tests.adapters.langgraph.scenarios import CONFIG, chat, say
from tests.adapters.langgraph.test_values import checkpoint

NEW: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}


class Watched(WatchedSaver):
    """Counts what it was told to store, and what the store refused because the thread had moved."""

    asked = refused = 0

    async def watch(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await call
        except VersionConflict:
            self.refused += 1
            raise

    async def _put(self, *args: Any) -> Any:
        self.asked += 1
        return await super()._put(*args)

    async def _put_writes(self, *args: Any) -> None:
        self.asked += 1
        await super()._put_writes(*args)


class Many(TypedDict):
    a: int
    b: int
    c: int


def fan(saver: EverturnSaver) -> Any:
    """A graph of three nodes that run side by side, and write at the same moment."""
    builder = StateGraph(Many)
    for name in ("a", "b", "c"):
        builder.add_node(f"to-{name}", lambda state, name=name: {name: state[name] + 1})
        builder.add_edge(START, f"to-{name}")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_run_is_not_refused_because_of_itself(backend: StoreUnderTest, durability: Any) -> None:
    with backend.open() as store:
        saver = Watched(store)
        for turn in range(15):
            fan(saver).invoke({"a": turn, "b": turn, "c": turn}, CONFIG, durability=durability)
        assert saver.asked >= 15 * 5
        assert saver.refused == 0
        assert fan(saver).get_state(CONFIG).values == {"a": 15, "b": 15, "c": 15}


def test_nor_where_it_awaits(backend: StoreUnderTest) -> None:
    async def main() -> None:
        async with backend.open_async() as store:
            saver = Watched(store)
            for turn in range(15):
                await fan(saver).ainvoke({"a": turn, "b": turn, "c": turn}, CONFIG)
            assert saver.asked >= 15 * 5
            assert saver.refused == 0

    asyncio.run(main())


# --- what tasks wrote and comes late ---------------------------------------------------------------------------------


def puts(store: MemoryStore) -> list[Any]:
    entries = store.state("a").entries
    return [entry.body for entry in entries if isinstance(entry, Record) and entry.kind == "lg.put"]


def put_all(saver: EverturnSaver, config: Any, names: list[str]) -> Any:
    for name in names:
        config = saver.put(config, checkpoint(name, number=name), {}, {"number": 1})
    return config


@pytest.mark.parametrize("later", [1, 5])
def test_writes_for_a_checkpoint_that_was_passed_wait_for_nothing(store: MemoryStore, later: int) -> None:
    saver = EverturnSaver(store)
    first = put_all(saver, NEW, ["c00"])
    config = put_all(saver, first, [f"c0{number}" for number in range(1, later + 1)])
    saver.put_writes(first, [("number", "late")], "task")
    put_all(saver, config, [f"d0{number}" for number in range(5)])
    assert [body for body in puts(store) if "awaiting" in body] == []
    found = EverturnSaver(store).get_tuple(first)
    assert found is not None
    assert found.pending_writes == [("task", "number", "late")]


def test_writes_that_come_early_are_found_when_their_checkpoint_comes(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    config = put_all(saver, NEW, ["c00"])
    ahead: Any = {"configurable": NEW["configurable"] | {"checkpoint_id": "c02"}}
    saver.put_writes(ahead, [("number", "early")], "task")
    config = put_all(saver, config, ["c01", "c02"])
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "number", "early")]


def test_writes_whose_checkpoint_never_comes_are_not_carried_for_ever(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    config = put_all(saver, NEW, ["c00"])
    lost: Any = {"configurable": NEW["configurable"] | {"checkpoint_id": "never"}}
    saver.put_writes(lost, [("number", "lost")], "task")
    put_all(saver, config, [f"c{number:04}" for number in range(EARLIEST + 10)])
    bodies = puts(store)
    assert "awaiting" in bodies[EARLIEST // 2]
    assert "awaiting" not in bodies[-1]


def test_a_real_graph_leaves_nothing_waiting(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    for turn in range(40):
        chat(saver).invoke(say(f"{turn}"), CONFIG)
    assert all(len(body.get("awaiting", ())) <= 2 for body in puts(store))


@pytest.mark.parametrize("knows", [True, False], ids=["the-same-saver", "another"])
def test_many_tasks_may_write_before_their_checkpoint_comes(store: MemoryStore, knows: bool) -> None:
    saver = EverturnSaver(store)
    config = put_all(saver, NEW, ["c00"])
    ahead: Any = {"configurable": NEW["configurable"] | {"checkpoint_id": "c01"}}
    many = EARLIEST + 50
    for number in range(many):
        saver.put_writes(ahead, [("number", number)], f"task {number}")
    config = put_all(saver if knows else EverturnSaver(store), config, ["c01"])
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(config)
        assert found is not None
        assert sorted(value for _, _, value in found.pending_writes or ()) == list(range(many))


def test_what_is_put_is_what_was_given_then(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = EverturnSaver(store)
    live: dict[str, Any] = {"set": {"a"}, "list": ["a"], "dict": {"a": 1}}
    put = saver._puts.put

    async def late(*args: Any) -> None:
        live["set"].add("b"), live["list"].append("b"), live["dict"].update(b=2)  # as LangGraph does meanwhile
        await put(*args)

    monkeypatch.setattr(saver._puts, "put", late)
    config = saver.put(NEW, checkpoint("c00", **live), {}, dict.fromkeys(live, 1))
    found = EverturnSaver(store).get_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"set": {"a"}, "list": ["a"], "dict": {"a": 1}}


# --- who only looked -------------------------------------------------------------------------------------------------


class Steps(TypedDict):
    steps: Annotated[list[str], operator.add]


def step(saver: Any) -> Any:
    builder = StateGraph(Steps)
    builder.add_node("n", lambda _: {"steps": ["n"]})
    builder.add_edge(START, "n")
    return builder.compile(checkpointer=saver)


def back_before_a_subgraph(saver: Any, *, look: bool) -> Any:
    builder = StateGraph(Steps)
    builder.add_node("before", lambda _: {"steps": ["b"]})
    builder.add_node("sub", step(True))
    builder.add_edge(START, "before")
    builder.add_edge("before", "sub")
    graph = builder.compile(checkpointer=saver, interrupt_before=["sub"])
    graph.invoke({"steps": []}, CONFIG)
    if look:
        graph.get_state(CONFIG, subgraphs=True)
    graph.invoke(None, CONFIG)
    before = [state for state in graph.get_state_history(CONFIG) if state.next == ("sub",)]
    return graph.invoke(None, before[-1].config)


def copy_of_the_first(saver: Any, *, look: bool) -> Any:
    graph = step(saver)
    if look:
        graph.get_state(CONFIG)
    graph.invoke({"steps": ["x"]}, CONFIG)
    first = list(graph.get_state_history(CONFIG))[-1]
    graph.update_state(first.config, None, as_node="__copy__")
    return graph.get_state(CONFIG).next


@pytest.mark.parametrize("look", [False, True], ids=["", "looked"])
@pytest.mark.parametrize("scene", [back_before_a_subgraph, copy_of_the_first])
def test_a_look_at_what_is_empty_changes_nothing(store: MemoryStore, scene: Any, look: bool) -> None:
    assert scene(EverturnSaver(store), look=look) == scene(InMemorySaver(), look=look)


# --- the queue itself ------------------------------------------------------------------------------------------------


def driven(coroutine: Any) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


def in_threads(work: Callable[[], None], count: int = 4) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_threads_go_one_after_the_other() -> None:
    queue, inside, most = ThreadLock(blocking=True), 0, 0

    async def once() -> None:
        nonlocal inside, most
        async with queue.hold("a"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.0005)  # noqa: ASYNC251 - it is driven, in a thread
            inside -= 1

    in_threads(lambda: [driven(once()) for _ in range(50)] and None)
    assert (most, inside) == (1, 0)
    assert not any(lock.locked() for lock in queue.locks.values())


def test_tasks_go_one_after_the_other_and_other_sessions_go_on() -> None:
    queue, order = ThreadLock(blocking=False), list[str]()

    async def once(session: str, name: str) -> None:
        async with queue.hold(session):
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    async def main() -> None:
        await asyncio.gather(once("a", "1"), once("a", "2"), once("b", "3"))

    asyncio.run(main())
    assert order[:2] == ["1 in", "3 in"]
    assert order.index("1 out") < order.index("2 in")
    assert not any(lock.locked() for lock in queue.locks.values())


@pytest.mark.parametrize("blocking", [True, False])
def test_who_has_waited_long_enough_goes_ahead(monkeypatch: pytest.MonkeyPatch, blocking: bool) -> None:
    monkeypatch.setattr(thread_lock, "PATIENCE", 0.02)
    queue = ThreadLock(blocking=blocking)

    async def main() -> None:
        async with queue.hold("a"):
            for _ in range(2):
                async with queue.hold("a"):
                    assert len(queue.locks) <= 1
        async with queue.hold("a"):
            pass

    asyncio.run(main())
    assert not any(lock.locked() for lock in queue.locks.values())


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    queue = ThreadLock(blocking=False)

    async def once() -> None:
        async with queue.hold("a"):
            raise AssertionError("it is not its turn")

    async def main() -> None:
        async with queue.hold("a"):
            waiting = asyncio.ensure_future(once())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    assert not any(lock.locked() for lock in queue.locks.values())


def test_a_lock_that_nobody_lets_go_of_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may come when it is taken, and before whoever took it knows."""
    monkeypatch.setattr(thread_lock, "PATIENCE", 0.02)
    queue = ThreadLock(blocking=True)

    async def once() -> None:
        async with queue.hold("a"):
            pass

    driven(once())
    lost = queue.locks["a"]
    assert isinstance(lost, type(threading.Lock()))
    lost.acquire()
    driven(once())
    assert queue.locks.get("a") is not lost
    driven(once())
    assert not queue.locks["a"].locked()


def test_the_locks_of_many_sessions_are_not_kept_for_ever() -> None:
    queue = ThreadLock(blocking=True)

    async def once(session: str) -> None:
        async with queue.hold(session):
            pass

    for number in range(3 * thread_lock.MOST):
        driven(once(f"session-{number}"))
    assert 0 < len(queue.locks) <= thread_lock.MOST


def test_an_error_in_front_lets_the_next_one_in() -> None:
    queue = ThreadLock(blocking=True)

    async def fails() -> None:
        async with queue.hold("a"):
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fails().send(None)
    assert not any(lock.locked() for lock in queue.locks.values())


def test_in_a_forked_process_nobody_stands_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = ThreadLock(blocking=True)

    async def once(then: Callable[[], None] = lambda: None) -> None:
        async with queue.hold("a"):
            then()

    def in_child() -> None:
        here = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        began = time.monotonic()
        driven(once())
        assert time.monotonic() - began < thread_lock.PATIENCE / 2

    driven(once(in_child))
