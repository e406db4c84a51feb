"""`saver.run(thread)`: of several processes that resume an interrupt one runs, and one that lost its lease is told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import everturn
from everturn import InvalidInput, LeaseHeld, LeaseLost, MemoryStore, MemoryStoreBackendError
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.conftest import StoreUnderTest
from tests.adapters.langgraph.scenarios import CONFIG, _with_subgraph, chat, say
from tests.adapters.stores import over_both_stores
from tests.integration.children import Child, children
from tests.tiers import deep

WORKERS = 4


class State(TypedDict, total=False):
    approved: bool
    paid: bool


def refund_graph(saver: EverturnSaver, pay: Callable[[], None], *, place: str) -> Any:
    """A graph that asks a person, and then pays: in the next node, or in the node of the interrupt."""

    def ask(_: State) -> State:
        approved = interrupt("pay?")
        if place == "interrupt":
            pay()
        return {"approved": approved}

    def settle(_: State) -> State:
        if place == "next":
            pay()
        return {"paid": True}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("settle", settle)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "settle")
    return builder.compile(checkpointer=saver)


def thread(number: int) -> Any:
    return {"configurable": {"thread_id": f"refund-{number}"}}


def resume(url: str, payments: str, place: str, durability: Any, wait: str) -> None:
    """Resume threads, in a process of its own: one for each line of stdin, which names it. Tell what came of it.

    Without a wait, a payment tells that it is under way, and waits for a line.
    """

    def pay() -> None:
        with Path(payments).open("a") as file:
            file.write(f"{number}\n")
        if not float(wait):
            print("paying", flush=True)
            sys.stdin.readline()

    with everturn.open(url) as store:
        saver = EverturnSaver(store)
        graph = refund_graph(saver, pay, place=place)
        print("ready", flush=True)
        while number := sys.stdin.readline().strip():
            config = thread(int(number))
            try:
                with saver.run(f"refund-{number}", wait=float(wait)):
                    is_mine = bool(graph.get_state(config).next)
                    if is_mine:
                        graph.invoke(Command(resume=True), config, durability=durability)
                print("ran" if is_mine else "too late", flush=True)
            except LeaseHeld:
                print("held", flush=True)


def say_to(processes: list[Child], text: object) -> None:
    for process in processes:
        process.stdin.write(f"{text}\n")


SHAPES = [
    ("sqlite", "next", "sync", 3),
    ("sqlite", "interrupt", "sync", 3),
    ("sqlite", "next", "async", 3),
    ("valkey", "interrupt", "async", 3),
    ("postgres", "interrupt", "async", 3),
    *[
        deep((name, place, durability, 50))
        for name in ("sqlite", "valkey", "postgres")
        for place in ("next", "interrupt")
        for durability in ("sync", "async")
    ],
]


@pytest.mark.parametrize(("name", "place", "durability", "rounds"), SHAPES)
def test_of_four_processes_that_resume_one_interrupt_one_pays(
    make_backend: Callable[[str], StoreUnderTest], tmp_path: Path, name: str, place: str, durability: str, rounds: int
) -> None:
    """The others are told while the payment is under way."""
    url, payments = make_backend(name).own_url, tmp_path / "payments"
    with everturn.open(url) as store:
        graph = refund_graph(EverturnSaver(store), lambda: None, place=place)
        for number in range(rounds):
            graph.invoke({}, thread(number))
        with children(*[(resume, url, payments, place, durability, 0)] * WORKERS) as processes:
            assert [process.line() for process in processes] == ["ready"] * WORKERS
            for number in range(rounds):
                say_to(processes, number)
                told = [process.line() for process in processes]
                assert sorted(told) == ["held"] * (WORKERS - 1) + ["paying"]
                winner = processes[told.index("paying")]
                say_to([winner], "go on")
                assert winner.line() == "ran"
        assert payments.read_text().split() == [str(number) for number in range(rounds)]
        assert all(graph.get_state(thread(number)).values["paid"] for number in range(rounds))


@pytest.mark.parametrize("rounds", [3, deep(50)])
def test_those_who_wait_find_that_it_was_done(tmp_path: Path, rounds: int) -> None:
    url, payments = f"sqlite:///{tmp_path}/memory.db", tmp_path / "payments"
    with everturn.open(url) as store:
        graph = refund_graph(EverturnSaver(store), lambda: None, place="interrupt")
        for number in range(rounds):
            graph.invoke({}, thread(number))
        with children(*[(resume, url, payments, "interrupt", "async", 60)] * WORKERS) as processes:
            assert [process.line() for process in processes] == ["ready"] * WORKERS
            for number in range(rounds):
                say_to(processes, number)
                assert sorted(process.line() for process in processes) == ["ran"] + ["too late"] * (WORKERS - 1)
        assert payments.read_text().split() == [str(number) for number in range(rounds)]


def resume_slowly(url: str) -> None:
    """Resume a thread under a short lease, in a process of its own that waits for a line while it pays."""

    def pay() -> None:
        print("paying", flush=True)
        sys.stdin.readline()

    with everturn.open(url) as store:
        saver = EverturnSaver(store)
        try:
            with saver.run("refund-0", seconds=0.5):
                refund_graph(saver, pay, place="interrupt").invoke(Command(resume=True), thread(0))
        except LeaseLost:
            print("lost", flush=True)


def stop_outside_of_a_change(process: Child, url: str) -> None:
    """Stop a process at a moment at which it does not hold a lock of the backend: nobody could write then."""
    with everturn.open(url, timeout=0.5) as store:
        while True:
            os.kill(process.pid, signal.SIGSTOP)
            try:
                store.lease("another session").release()
            except MemoryStoreBackendError:
                os.kill(process.pid, signal.SIGCONT)
            else:
                return


@pytest.mark.parametrize("name", ["sqlite", "valkey", "postgres"])
def test_a_process_that_slept_past_its_lease_stores_nothing(
    make_backend: Callable[[str], StoreUnderTest], name: str
) -> None:
    """Also if nothing has moved meanwhile: the other run wrote nothing."""
    url = make_backend(name).own_url
    with everturn.open(url) as store:
        saver = EverturnSaver(store)
        refund_graph(saver, lambda: None, place="interrupt").invoke({}, thread(0))
        with children((resume_slowly, url)) as (process,):
            assert process.line() == "paying"
            stop_outside_of_a_change(process, url)
            with saver.run("refund-0", wait=60):
                before = store.info("refund-0").version
            os.kill(process.pid, signal.SIGCONT)
            say_to([process], "go on")
            assert process.line() == "lost"
        assert store.info("refund-0").version == before


def test_a_put_of_a_run_whose_lease_is_lost_is_refused(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    graph = chat(saver)
    graph.invoke(say("one"), CONFIG)
    first = list(graph.get_state_history(CONFIG))[-1]
    before = store.info("a").version
    with saver.run("a") as lease:
        lease.release()
        with pytest.raises(LeaseLost):
            graph.invoke(say("two"), CONFIG)
        with pytest.raises(LeaseLost):
            graph.update_state(first.config, {"messages": []})  # on an earlier checkpoint: a replace
        with pytest.raises(LeaseLost):
            saver.put_writes(graph.get_state(CONFIG).config, [("x", 1)], "task")
    assert store.info("a").version == before
    graph.invoke(say("two"), CONFIG)  # after the block nothing is named


def test_a_put_of_a_subgraph_asks_whether_the_lease_of_its_thread_is_in_force(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    with saver.run("a") as lease:
        _with_subgraph(saver, checkpointer=True).invoke({"steps": [], "last": 1}, CONFIG)
        found = saver.get_tuple({"configurable": {"thread_id": "a", "checkpoint_ns": "sub"}})
        assert found is not None
        before = store.info("a#sub").version
        lease.release()
        with pytest.raises(LeaseLost):
            saver.put_writes(found.config, [("x", 1)], "task")
    assert store.info("a#sub").version == before


def test_other_threads_and_other_savers_are_not_touched_by_a_run(store: MemoryStore) -> None:
    saver, other = EverturnSaver(store), EverturnSaver(store)
    with saver.run("a") as lease:
        lease.release()
        chat(saver).invoke(say("one"), {"configurable": {"thread_id": "b"}})
        chat(other).invoke(say("one"), CONFIG)
        with other.run("a"):
            chat(other).invoke(say("two"), CONFIG)
    assert len(store.get_history("a")) == 4


def test_a_second_run_of_one_saver_waits_for_the_end_of_one_that_lost_its_lease(store: MemoryStore) -> None:
    """Else the puts of the first would name the lease of the second."""
    saver = EverturnSaver(store)
    with saver.run("a") as lease:
        lease.release()
        with pytest.raises(LeaseHeld, match="has not ended yet"):
            saver.run("a").__enter__()
        with pytest.raises(LeaseLost):
            chat(saver).invoke(say("one"), CONFIG)
    with saver.run("a"):
        chat(saver).invoke(say("one"), CONFIG)


def test_an_effect_in_a_node_is_begun_under_the_lease_of_the_run(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    paid: list[int] = []

    def pay() -> None:
        store.once("refund-0", "refund", lambda: paid.append(1), lease=lease)

    graph = refund_graph(saver, pay, place="interrupt")
    graph.invoke({}, thread(0))
    asked = graph.get_state(thread(0)).config
    with saver.run("refund-0") as lease:
        graph.invoke(Command(resume=True), thread(0))
        graph.invoke(Command(resume=True), asked)  # time travel: the node runs again
    assert paid == [1]
    assert [effect.lease for effect in store.get_effects("refund-0")] == [lease.token]
    assert store.verify().ok


def test_a_run_is_awaited_over_both_stores(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        saver, other = EverturnSaver(store), EverturnSaver(store)
        async with saver.run("a") as lease:
            with pytest.raises(LeaseHeld):
                await other.run("a").__aenter__()
            await chat(saver).ainvoke(say("one"), CONFIG)
            released = lease.release()
            if released is not None:
                await released
            with pytest.raises(LeaseLost):
                await chat(saver).ainvoke(say("two"), CONFIG)
        async with other.run("a"):
            await chat(other).ainvoke(say("two"), CONFIG)
        async with saver.run("a"):
            assert len((await chat(saver).aget_state(CONFIG)).values["messages"]) == 4

    over_both_stores(tmp_path, story)


def test_a_run_that_is_cancelled_while_it_waits_holds_nothing(tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        saver, other = EverturnSaver(store), EverturnSaver(store)
        async with saver.run("a"):
            waiting = asyncio.ensure_future(other.run("a", wait=60).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with saver.run("a"):
            pass

    over_both_stores(tmp_path, story)


def test_a_run_for_a_time_that_is_none_is_refused(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    with pytest.raises(InvalidInput, match="seconds"), saver.run("a", seconds=0):
        pass
    with pytest.raises(InvalidInput, match="wait"), saver.run("a", wait=-1):
        pass
