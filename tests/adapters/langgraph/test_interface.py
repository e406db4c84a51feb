"""The interface is LangGraph's, all of it: a release that adds to it is noticed here."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde import _msgpack, jsonplus

import everturn
from everturn import AsyncMemoryStore, InvalidInput, MemoryStore, Unsupported
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.checking import refusal
from tests.adapters.langgraph.conftest import StoreUnderTest, WatchedSaver
from tests.adapters.langgraph.scenarios import CONFIG, chat, say

# What LangGraph's base class has and we need not override: they are made of the rest.
INHERITED = {"get", "aget", "config_specs"}
OURS = {"run"}  # beyond LangGraph's interface


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_every_method_of_the_interface_is_ours_or_known_to_be_derived() -> None:
    assert set(public(BaseCheckpointSaver)) - INHERITED == set(public(EverturnSaver)) - OURS


@pytest.mark.parametrize("name", sorted(set(public(BaseCheckpointSaver)) - INHERITED))
def test_a_method_takes_what_the_interface_says(name: str) -> None:
    theirs = inspect.signature(getattr(BaseCheckpointSaver, name)).parameters.values()
    ours = inspect.signature(getattr(EverturnSaver, name)).parameters.values()
    assert [(each.name, each.kind, each.default) for each in ours] == [(e.name, e.kind, e.default) for e in theirs]


@pytest.mark.parametrize("name", sorted(name for name in public(EverturnSaver) if hasattr(EverturnSaver, f"a{name}")))
def test_a_method_and_its_awaited_twin_are_of_one_mind(name: str) -> None:
    blocking, awaited = getattr(EverturnSaver, name), getattr(EverturnSaver, f"a{name}")
    assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
    assert inspect.iscoroutinefunction(awaited) or inspect.isasyncgenfunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


def test_the_forms_that_langgraph_serializes_to_are_those_we_read() -> None:
    """These are the codes in stored values; a new one has to be read, too."""
    codes = {name: value for name, value in vars(jsonplus).items() if name.startswith("EXT_")}
    assert sorted(codes.values()) == list(range(8))
    assert ("langgraph.types", "Send") in _msgpack.SAFE_MSGPACK_TYPES
    assert {("datetime", "datetime", "fromisoformat")} == _msgpack.SAFE_MSGPACK_METHODS


# --- faces -----------------------------------------------------------------------------------------------------------


def test_a_graph_can_be_awaited_on_either_face(backend: StoreUnderTest) -> None:
    async def talk(store: MemoryStore | AsyncMemoryStore, thread: str) -> list[str]:
        graph = chat(EverturnSaver(store))
        config: Any = {"configurable": {"thread_id": thread}}
        for text in ("one", "two"):
            await graph.ainvoke(say(text), config)
        states = [state async for state in graph.aget_state_history(config)]
        await graph.ainvoke(say("instead"), states[3].config)
        return [message.text for message in (await graph.aget_state(config)).values["messages"]]

    async def on_both() -> list[list[str]]:
        with backend.open() as blocking:
            said = [await talk(blocking, "blocking")]
        async with backend.open_async() as awaited:
            return [*said, await talk(awaited, "awaited")]

    assert asyncio.run(on_both()) == [["one", "answer to one", "instead", "answer to instead"]] * 2


def test_blocking_methods_over_an_async_store_say_what_to_use() -> None:
    async def call() -> None:
        async with await everturn.open_async("sqlite://") as store:
            with pytest.raises(Unsupported, match="use its async methods"):
                EverturnSaver(store).get_tuple(CONFIG)

    asyncio.run(call())


def test_async_methods_over_a_blocking_store_let_the_loop_go_on(store: MemoryStore) -> None:
    turn = threading.Event()

    class Waiting(WatchedSaver):
        async def watch(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
            assert turn.wait(timeout=60), "the loop stood still"
            return await call

    async def both() -> None:
        reading = asyncio.create_task(Waiting(store).aget_tuple(CONFIG))
        await asyncio.sleep(0)
        turn.set()  # only a loop that goes on gets here
        assert await reading is None

    asyncio.run(both())


# --- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_no_store_is_refused() -> None:
    message = r"^store: must be a store from everturn\.open\(\.\.\.\) or open_async\(\.\.\.\), not a str"
    with pytest.raises(InvalidInput, match=message):
        EverturnSaver("sqlite://")  # type: ignore[arg-type]
    with everturn.open("sqlite://") as store, pytest.raises(InvalidInput, match="on_conflict: "):
        EverturnSaver(store, on_conflict="ignore")  # type: ignore[arg-type]


def test_a_config_without_a_thread_is_refused(store: MemoryStore) -> None:
    with pytest.raises(InvalidInput, match="thread_id"):
        EverturnSaver(store).get_tuple({"configurable": {}})
    with pytest.raises(InvalidInput, match="checkpoint_id"):
        EverturnSaver(store).put_writes(CONFIG, [("a", 1)], "task")
    with pytest.raises(InvalidInput, match="strategy"):
        EverturnSaver(store).prune(["a"], strategy="some")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "needs langgraph, which is not installed"),
        (
            {"langgraph": "0.6.0", "langgraph-checkpoint": "4.3.1"},
            "needs langgraph 1.2 or newer, and 0.6.0 is installed",
        ),
        ({"langgraph": "1.2.0", "langgraph-checkpoint": "3.0.1"}, "needs langgraph-checkpoint 4.2 or newer"),
    ],
)
def test_without_langgraph_or_with_an_old_one_it_says_what_to_install(found: dict[str, str], why: str) -> None:
    said = refusal("everturn.adapters.langgraph", found)
    assert why in said
    assert 'pip install "everturn[langgraph]"' in said


def test_everturn_itself_imports_no_framework() -> None:
    script = "import sys, everturn, everturn.adapters; print([n for n in sys.modules if n.startswith('lang')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_extra_names_what_the_adapter_needs() -> None:
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert 'langgraph = ["langgraph>=1.2", "langgraph-checkpoint>=4.2"]' in pyproject
