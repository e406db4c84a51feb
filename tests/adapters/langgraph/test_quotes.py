"""A conversation inside other values is quoted, and not written again: it comes back whatever moves in between."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Send

from everturn import ChatMessage, MemoryStore, Record
from everturn.adapters._langgraph_quotes import quotes_in
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.test_values import checkpoint

NEW: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}


def said(count: int = 4) -> list[BaseMessage]:
    return [HumanMessage(f"text {number}", id=f"m{number}") for number in range(count)]


def quotes(store: MemoryStore) -> list[int]:
    """How many messages are quoted in what tasks wrote, and in checkpoints."""
    bodies = [entry.body for entry in store.state("a").entries if isinstance(entry, Record)]
    return [ref["n"] for body in bodies for ref in quotes_in(body)]


def begun(saver: EverturnSaver) -> Any:
    return saver.put(NEW, checkpoint("c1", messages=said()), {}, {"messages": 1})


@pytest.mark.parametrize("as_new", [False, True], ids=["remembered", "read"])
@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (said(4), [4]),
        (said(3), [3]),
        (said(6), [4]),
        ([*said(2), AIMessage("other")], [2]),
        ({"state": {"messages": said(4)}, "more": (said(2), [said(3)])}, [4, 2, 3]),
        (Send("node", {"messages": said(4)}), [4]),
        (said(1), []),
        ([HumanMessage("text 0", id="m0"), "no message", "nor this"], []),
        ([AIMessage("text 0", id="m0"), *said(4)[1:]], []),
        ([HumanMessage("text 0"), *said(4)[1:]], []),
        ([HumanMessage("text 0", id="m0", additional_kwargs={"more": 1}), *said(4)[1:]], []),
        (said(4)[::-1], []),
    ],
)
def test_what_a_task_writes_quotes_what_it_was_given(
    store: MemoryStore, value: Any, quoted: list[int], as_new: bool
) -> None:
    saver = EverturnSaver(store)
    config = begun(saver)
    if as_new:
        saver = EverturnSaver(store)
        saver.get_tuple(config)
    saver.put_writes(config, [("doc", value), ("doc", 1)], "task")
    assert quotes(store) == quoted
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", value), ("task", "doc", 1)]


def test_what_comes_back_is_ones_own(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    config = begun(saver)
    saver.put_writes(config, [("doc", [said(), said()])], "task")
    found = saver.get_tuple(NEW)
    assert found is not None
    assert found.pending_writes is not None
    first, second = found.pending_writes[0][2]
    first[0].content = "changed"
    assert second == found.checkpoint["channel_values"]["messages"] == said()
    assert saver.get_tuple(NEW) != found


def test_a_saver_that_does_not_know_that_messages_have_moved_names_none(store: MemoryStore) -> None:
    one, other = EverturnSaver(store), EverturnSaver(store)
    config = begun(one)
    other.put(config, checkpoint("c2", messages=said(6)), {}, {"messages": 2})
    latest = one.get_tuple(NEW)
    assert latest is not None
    other.prune(["a"])
    one.put_writes(latest.config, [("doc", said(6))], "task")
    assert quotes(store) == []
    for reader in (one, other, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", said(6))]


def test_messages_may_move_while_a_write_waits_its_turn(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = EverturnSaver(store)
    config = saver.put(begun(saver), checkpoint("c2", messages=said(6)), {}, {"messages": 2})
    wait = saver._queue.in_front

    def and_meanwhile(session_id: str) -> Any:
        monkeypatch.undo()
        saver.prune(["a"])
        assert saver.get_tuple(NEW)  # which is remembered
        return wait(session_id)

    monkeypatch.setattr(saver._queue, "in_front", and_meanwhile)
    saver.put_writes(config, [("doc", said(6))], "task")
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", said(6))]


def test_a_value_may_quote_what_is_no_longer_said(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    config = saver.put(NEW, checkpoint("c1", messages=said(), doc={"then": said()}), {}, {"messages": 1, "doc": 1})
    edited = checkpoint("c2", messages=[AIMessage("new", id="n")], doc={"then": said()})
    edited["channel_versions"] = {"messages": 2, "doc": 1}
    saver.put(config, edited, {}, {"messages": 2})
    assert quotes(store) == [4]
    for _ in range(2):
        for reader in (saver, EverturnSaver(store)):
            found = reader.get_tuple(NEW)
            assert found is not None
            assert found.checkpoint["channel_values"] == {
                "messages": [AIMessage("new", id="n")],
                "doc": {"then": said()},
            }
        saver.prune(["a"])


def test_a_checkpoint_that_is_put_again_keeps_what_was_written_for_it(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    config = begun(saver)
    saver.put_writes(config, [("doc", said())], "task")
    again = saver.put(NEW, checkpoint("c1", messages=[AIMessage("other", id="o")]), {}, {"messages": 1})
    saver.put_writes(again, [("doc", 2)], "later")
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == [AIMessage("other", id="o")]
        assert found.pending_writes == [("later", "doc", 2), ("task", "doc", said())]


def test_messages_without_ids_of_their_own_are_quoted_with_those_they_have_in_the_session(store: MemoryStore) -> None:
    store.add_messages("a", [ChatMessage("user", "one"), ChatMessage("assistant", "two")])
    saver = EverturnSaver(store)
    mine = [HumanMessage("one", id="everturn-1"), AIMessage("two", id="everturn-2")]
    config = saver.put(NEW, checkpoint("c1", messages=mine), {}, {"messages": 1})
    saver.put_writes(config, [("doc", mine)], "task")
    assert quotes(store) == [2]
    found = EverturnSaver(store).get_tuple(NEW)
    assert found is not None
    assert found.pending_writes == [("task", "doc", mine)]
