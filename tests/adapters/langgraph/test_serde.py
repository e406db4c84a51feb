"""A serializer of the caller's, classes that were renamed, models by field: what a saver makes of values."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ConfigDict

import everturn
from everturn import InvalidInput, MemoryStore, Unsupported, VersionConflict
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.scenarios import CONFIG, chat, say


class Reversing(CipherProtocol):
    """As good as a real cipher for what is tested here: nothing stays as it was."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[::-1]


def sealed(store: MemoryStore) -> EverturnSaver:
    return EverturnSaver(store, serde=EncryptedSerializer(Reversing()))


def test_a_chat_goes_through_a_callers_serializer_every_time(store: MemoryStore) -> None:
    """The id that add_messages gives a message in place came after the value was dumped: 62 of 100 runs failed."""
    graph = chat(sealed(store))
    for number in range(20):
        graph.invoke({"messages": [("user", f"question {number}")]}, CONFIG)
    assert len(graph.get_state(CONFIG).values["messages"]) == 40
    assert store.find("question") == []


def test_an_interrupt_goes_through_a_callers_serializer(store: MemoryStore) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {interrupt('well?')}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=sealed(store))
    graph.invoke(say("hello"), CONFIG)
    (task,) = graph.get_state(CONFIG).tasks
    assert [each.value for each in task.interrupts] == ["well?"]
    graph.invoke(Command(resume="yes"), CONFIG)
    assert graph.get_state(CONFIG).values["messages"][-1].text == "you said yes"


def test_the_error_of_a_node_is_stored_through_a_callers_serializer(store: MemoryStore) -> None:
    def fail(_: MessagesState) -> dict[str, Any]:
        raise ValueError("no order")

    builder = StateGraph(MessagesState)
    builder.add_node("fail", fail)
    builder.add_edge(START, "fail")
    graph = builder.compile(checkpointer=sealed(store))
    with pytest.raises(ValueError, match="no order"):
        graph.invoke(say("hello"), CONFIG, durability="sync")
    (task,) = graph.get_state(CONFIG).tasks
    assert "no order" in str(task.error)


class Renamed(BaseModel):
    number: int


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int
    said: list[BaseMessage] = []


class Shop(MessagesState):
    order: Any


def shop(saver: EverturnSaver, value: Any) -> Any:
    builder = StateGraph(Shop)
    builder.add_node("set", lambda _: {"order": value})
    builder.add_edge(START, "set")
    return builder.compile(checkpointer=saver)


def test_a_model_comes_back_with_the_messages_in_it(store: MemoryStore) -> None:
    order = Order(number=7, said=[HumanMessage("hello", id="1"), AIMessage("hi", id="2")], note="extra")
    shop(EverturnSaver(store, allow=[Order]), order).invoke(say("x"), CONFIG)
    found = shop(EverturnSaver(store, allow=[Order]), None).get_state(CONFIG).values["order"]
    assert found == order
    assert [type(message) for message in found.said] == [HumanMessage, AIMessage]
    assert found.model_fields_set == order.model_fields_set


def test_a_class_that_was_renamed_is_named_by_what_it_is_now(store: MemoryStore, monkeypatch: Any) -> None:
    shop(EverturnSaver(store, allow=[Order]), Order(number=7)).invoke(say("x"), CONFIG)
    old = f"{Order.__module__}.Order"
    monkeypatch.delattr(old)
    with pytest.raises(Unsupported, match="If it was renamed, say what it is now"):
        shop(EverturnSaver(store, allow=[(Renamed.__module__, "Order")]), None).get_state(CONFIG)
    found = shop(EverturnSaver(store, allow={old: Renamed}), None).get_state(CONFIG).values["order"]
    assert found == Renamed.model_construct(_fields_set={"number"}, number=7, said=[])


class Basket:
    """Holds a class that no module has by its own name."""

    @dataclass
    class Item:
        number: int

    class Size(Enum):
        SMALL = 1


def test_a_class_inside_another_or_a_function_comes_back_if_it_is_allowed(store: MemoryStore) -> None:
    class Local(BaseModel):
        item: Basket.Item
        size: Basket.Size

    value = Local(item=Basket.Item(7), size=Basket.Size.SMALL)
    allow = [Local, Basket.Item, Basket.Size]
    shop(EverturnSaver(store, allow=allow), value).invoke(say("x"), CONFIG)
    names = {(kind.__module__, kind.__name__) for kind in allow}  # as LangGraph's strict mode gives them once more
    for saver in (EverturnSaver(store, allow=allow), EverturnSaver(store, allow=allow).with_allowlist(names)):
        found = shop(saver, None).get_state(CONFIG).values["order"]
        assert found == value
        assert type(found) is Local


def test_two_classes_of_one_name_are_not_taken_for_each_other(store: MemoryStore) -> None:
    class Order(BaseModel):
        number: int

    with pytest.raises(InvalidInput, match=r"allow: two classes are named 'tests\..*\.Order'"):
        EverturnSaver(store, allow=[globals()["Order"], Order])
    EverturnSaver(store, allow=[Order, Order])
    old = f"{Order.__module__}.Order"
    EverturnSaver(store, allow={old: Order})


def test_an_agent_with_a_pydantic_state_can_be_used(store: MemoryStore) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent
        from langgraph.prebuilt.chat_agent_executor import AgentStatePydantic

        model = GenericFakeChatModel(messages=iter([AIMessage("first"), AIMessage("second")]))
        agent = create_react_agent(model, [], state_schema=AgentStatePydantic, checkpointer=EverturnSaver(store))
        agent.invoke({"messages": [HumanMessage("one")]}, CONFIG)
        agent.invoke({"messages": [HumanMessage("two")]}, CONFIG)
        said = [message.text for message in agent.get_state(CONFIG).values["messages"]]
    assert said == ["one", "first", "two", "second"]


def test_configs_hold_plain_strings(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    chat(saver).invoke(say("hello"), CONFIG)
    found = saver.get_tuple(CONFIG)
    assert found is not None
    for config in (found.config, found.parent_config):
        assert config is not None
        assert type(config["configurable"]["checkpoint_id"]) is str
        msgspec.msgpack.encode(config["configurable"])


def test_an_empty_checkpoint_id_lists_all(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    chat(saver).invoke(say("hello"), CONFIG)
    named: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": "", "checkpoint_id": ""}}
    assert len(list(saver.list(named))) == len(list(saver.list(CONFIG))) > 0


def test_checkpoints_of_all_namespaces_are_listed_by_id(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    for number in range(6):
        config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": "child" if number % 2 else ""}}
        saver.put(config, checkpoint(f"{number}"), {"step": number}, {})
    whole: Any = {"configurable": {"thread_id": "a"}}
    assert [found.checkpoint["id"] for found in saver.list(whole)] == list("543210")
    assert [found.checkpoint["id"] for found in saver.list(whole, limit=3)] == list("543")


def checkpoint(name: str, **more: Any) -> Any:
    return {"v": 4, "id": name, "ts": "2026-11-18T00:00:00+00:00", "channel_versions": {}, "versions_seen": {}} | more


def test_a_checkpoint_without_values_is_put(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    saver.put({"configurable": {"thread_id": "a", "checkpoint_ns": ""}}, checkpoint("1"), {}, {})
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"] == {}


def test_a_cycle_of_parents_ends(store: MemoryStore) -> None:
    saver = EverturnSaver(store, on_conflict="last_wins")
    for name, parent in (("1", "2"), ("2", "1")):
        config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": "", "checkpoint_id": parent}}
        saver.put(config, checkpoint(name, channel_values={}), {}, {})
    assert saver.get_delta_channel_history(config=CONFIG, channels=["x"]) == {"x": {"writes": []}}


def test_a_parent_in_a_thread_that_never_was_is_told_as_such(store: MemoryStore) -> None:
    config: Any = {"configurable": {"thread_id": "never", "checkpoint_ns": "", "checkpoint_id": "1"}}
    with pytest.raises(VersionConflict, match="nothing is stored under this name"):
        EverturnSaver(store).put(config, checkpoint("2", channel_values={}), {}, {})


def test_an_old_checkpoint_gets_the_sends_of_its_parents_tasks(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    first = saver.put({"configurable": {"thread_id": "a", "checkpoint_ns": ""}}, checkpoint("1", v=3), {}, {})
    saver.put_writes(first, [("__pregel_tasks", "send me"), ("other", 1)], "task")
    saver.put(first, checkpoint("2", v=3, channel_versions={"other": 5}), {}, {})
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"]["__pregel_tasks"] == ["send me"]
    assert found.checkpoint["channel_versions"]["__pregel_tasks"] == 5


def test_an_old_checkpoint_costs_the_same_whatever_came_before_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent is read for the sends, and not the parent of that one."""
    saver = EverturnSaver(store)
    backend: Any = store._operations.backend
    real, reads = backend.read, 0

    def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return real(*args)

    monkeypatch.setattr(backend, "read", counted)
    config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
    costs = []
    for number in range(12):
        config = saver.put(config, checkpoint(f"{number:02}", v=3), {}, {})
        reads = 0
        found = saver.get_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["id"] == f"{number:02}"
        costs.append(reads)
    assert costs[2] == costs[-1] < 8


@pytest.mark.parametrize("strategy", ["delete", "keep_latest"])
def test_a_string_is_no_list_of_ids(store: MemoryStore, strategy: str) -> None:
    saver = EverturnSaver(store)
    for thread in ("a", "b", "ab"):
        chat(saver).invoke(say("hello"), {"configurable": {"thread_id": thread}})
    with pytest.raises(InvalidInput, match="list of ids"):
        saver.prune("ab", strategy=strategy)
    with pytest.raises(InvalidInput, match="list of ids"):
        saver.delete_for_runs("ab")
    assert len(store.sessions().sessions) == 3


def test_blocking_calls_from_another_thread_are_handed_to_the_loop(tmp_path: Any) -> None:
    async def story() -> None:
        async with await everturn.open_async(f"sqlite:///{tmp_path}/memory.db") as store:
            saver = EverturnSaver(store)
            graph = chat(saver)
            await graph.ainvoke(say("hello"), CONFIG)
            found = await asyncio.to_thread(saver.get_tuple, CONFIG)
            assert found is not None
            await asyncio.to_thread(graph.invoke, say("again"), CONFIG)
            assert len(list(await asyncio.to_thread(lambda: list(saver.list(CONFIG))))) > 4
            with pytest.raises(Unsupported, match="async methods"):
                saver.get_tuple(CONFIG)  # it would wait for itself

    asyncio.run(story())
