"""A conversation inside other values is quoted, and not written again: it comes back whatever moves in between."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.types import Send

from everturn import ChatMessage, InvalidInput, MemoryStore, Record
from everturn.adapters.langgraph import EverturnSaver
from everturn.adapters.langgraph.message_refs import quotes_in
from tests.adapters.langgraph.conftest import WatchedSaver
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
    wait = saver._lock.hold

    def and_meanwhile(session_id: str) -> Any:
        monkeypatch.undo()
        saver.prune(["a"])
        assert saver.get_tuple(NEW)  # which is remembered
        return wait(session_id)

    monkeypatch.setattr(saver._lock, "hold", and_meanwhile)
    saver.put_writes(config, [("doc", said(6))], "task")
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", said(6))]


@pytest.mark.parametrize("of", ["c1", "c2"], ids=["late", "early"])
def test_what_a_task_writes_before_its_checkpoint_or_after_the_next_quotes_as_well(store: MemoryStore, of: str) -> None:
    saver = EverturnSaver(store)
    first = begun(saver)
    late_or_early: Any = {"configurable": {**NEW["configurable"], "checkpoint_id": of}}
    if of == "c1":
        saver.put(first, checkpoint("c2", messages=said(6)), {}, {"messages": 2})
    saver.put_writes(late_or_early, [("doc", said(5))], "task")
    if of == "c2":
        saver.put(first, checkpoint("c2", messages=said(6)), {}, {"messages": 2})
    assert quotes(store) == [5 if of == "c1" else 4]
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(late_or_early)
        assert found is not None
        assert found.pending_writes == [("task", "doc", said(5))]


@pytest.mark.parametrize(("then", "quoted"), [(said(6), [4]), (said(4)[1:], []), (said(4)[::-1], [])])
def test_a_checkpoint_may_come_while_a_write_waits_its_turn(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, then: list[BaseMessage], quoted: list[int]
) -> None:
    saver = EverturnSaver(store)
    config = begun(saver)
    wait = saver._lock.hold

    def and_meanwhile(session_id: str) -> Any:
        monkeypatch.undo()
        saver.put(config, checkpoint("c2", messages=then), {}, {"messages": 2})
        return wait(session_id)

    monkeypatch.setattr(saver._lock, "hold", and_meanwhile)
    saver.put_writes(config, [("doc", said())], "task")
    assert quotes(store) == quoted
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "doc", said())]


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
        assert [message.text for message in store.get_history("a")] == ["new"]  # what is only quoted is not said
    latest = saver.get_tuple(NEW)
    assert latest is not None
    saver.put(latest.config, checkpoint("c3", messages=[AIMessage("new", id="n")]), {}, {"messages": 3})
    saver.prune(["a"])
    assert "text 0" not in str(store.state("a").entries)  # nor kept, once nobody quotes it


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


LOOK_ALIKES = [[{"said": [[1, 4]], "n": 3}, []], [{"said": [[1, 2]], "n": 2}, []], "hello", None]


@pytest.mark.parametrize("of", LOOK_ALIKES)
def test_what_only_looks_like_a_quote_is_left_alone(store: MemoryStore, of: Any) -> None:
    """What a user said is in a message as it is, and comes from outside."""
    alike = HumanMessage([{"type": "text", "text": "x", "!": "quote", "of": of}], id="alike")
    one, other = EverturnSaver(store), EverturnSaver(store)
    values = {"messages": [*said(), alike], "doc": {"m": alike}}
    config = one.put(NEW, checkpoint("c1", **values), {}, {"messages": 1, "doc": 1})
    other.put_writes(config, [("doc", alike)], "task 1")
    one.put_writes(config, [("doc", {"q": said(), "m": alike})], "task 2")  # it has to take its quotes back
    for _ in range(2):
        found = EverturnSaver(store).get_tuple(NEW)
        assert found is not None
        assert found.checkpoint["channel_values"] == values
        assert found.pending_writes == [("task 1", "doc", alike), ("task 2", "doc", {"q": said(), "m": alike})]
        one.prune(["a"])


def test_messages_within_messages_are_not_quoted(store: MemoryStore) -> None:
    one, other = EverturnSaver(store), EverturnSaver(store)
    talk = [*said(3), ToolMessage("t", tool_call_id="c", id="t", artifact=said(2))]
    one.put(begun(one), checkpoint("c2", messages=talk), {}, {"messages": 2})
    latest = one.get_tuple(NEW)
    assert latest is not None
    other.prune(["a"])
    one.put_writes(latest.config, [("doc", talk)], "task")
    found = EverturnSaver(store).get_tuple(NEW)
    assert found is not None
    assert found.pending_writes == [("task", "doc", talk)]


def test_the_input_of_another_thread_is_not_taken_for_ones_own(store: MemoryStore) -> None:
    """Also where threads have checkpoints of the same name, and their messages the same seqs."""
    saver = EverturnSaver(store)
    elsewhere: Any = {"configurable": {"thread_id": "b", "checkpoint_ns": ""}}
    others = [HumanMessage(f"other {number}", id=f"o{number}") for number in range(4)]
    given = {"doc": "its own input, which is long enough to be looked up"}
    there = saver.put(
        elsewhere, checkpoint("c1", messages=others, __start__=given), {}, {"messages": 1, "__start__": 1}
    )
    saver.put(NEW, checkpoint("c1", messages=said(), __start__={"doc": said()}), {}, {"messages": 1, "__start__": 1})
    saver.put_writes(there, [("doc", others)], "task")
    found = saver.get_tuple(elsewhere)
    assert found is not None
    assert found.pending_writes == [("task", "doc", others)]


def test_what_many_values_quote_is_read_at_once(store: MemoryStore) -> None:
    class Counting(WatchedSaver):
        calls = 0

        async def watch(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
            self.calls += 1
            return await call

    saver = Counting(store)
    config: Any = NEW
    seen: list[Any] = []
    for step in range(1, 30):
        seen.append({"seen": said(step + 1)})
        put = checkpoint(f"c{step:02}", messages=said(step + 1), log=list(seen))
        put["channel_versions"] = {"messages": step, "log": step}
        config = saver.put(config, put, {}, put["channel_versions"])
    put = checkpoint("end", messages=[AIMessage("summary", id="s")], log=list(seen))
    put["channel_versions"] = {"messages": 99, "log": 29}
    saver.put(config, put, {}, {"messages": 99})
    reader = Counting(store)
    found = reader.get_tuple(NEW)
    assert found is not None
    assert found.checkpoint["channel_values"]["log"] == seen
    assert 0 < reader.calls < 8


def test_messages_keep_the_names_they_have_by_their_seqs_when_they_move(store: MemoryStore) -> None:
    store.add_messages("a", [ChatMessage("user", "one"), ChatMessage("assistant", "two")])
    saver = EverturnSaver(store)
    mine = [HumanMessage("one", id="everturn-1"), AIMessage("two", id="everturn-2")]
    first = saver.put(NEW, checkpoint("c1", messages=mine, doc=mine[:]), {}, {"messages": 1, "doc": 1})
    put = checkpoint("c2", messages=[*mine, HumanMessage("more", id="m")], doc=mine[:])
    put["channel_versions"] = {"messages": 2, "doc": 1}
    second = saver.put(first, put, {}, {"messages": 2})
    saver.put_writes(second, [("doc", mine)], "task")
    store.add_messages("a", [ChatMessage("user", "not of the graph")])
    saver.prune(["a"])
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.checkpoint["channel_values"] == put["channel_values"]
        assert found.pending_writes == [("task", "doc", mine)]
    assert store.get_history("a")[-1].id is None


def test_what_was_written_long_before_a_checkpoint_was_put_again_is_found(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    saver.put_writes(begun(saver), [("doc", 1)], "task")
    saver.put(NEW, checkpoint("c1", messages=said(300)), {}, {"messages": 1})
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", 1)]


def test_a_checkpoint_is_not_put_again_with_another_input_that_a_write_stands_on(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    inputs = [{"doc": f"an input that is long enough to be looked up: {name}"} for name in ("one", "two")]
    config = saver.put(NEW, checkpoint("c1", __start__=inputs[0]), {}, {"__start__": 1})
    saver.put_writes(config, [("doc", inputs[0]["doc"])], "task")
    saver.put(NEW, checkpoint("c1", __start__=inputs[0]), {}, {"__start__": 1})
    with pytest.raises(InvalidInput, match="another input"):
        saver.put(NEW, checkpoint("c1", __start__=inputs[1]), {}, {"__start__": 1})
    for reader in (saver, EverturnSaver(store)):
        found = reader.get_tuple(NEW)
        assert found is not None
        assert found.pending_writes == [("task", "doc", inputs[0]["doc"])]


CHILD: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": "sub"}}
GIVEN = {"messages": said(), "n": 1}


def given_to_a_subgraph(saver: EverturnSaver, given: Any = GIVEN) -> Any:
    return saver.put(CHILD, checkpoint("c1", __start__=given), {"run_id": "r"}, {"__start__": 1})


def goes_on(saver: EverturnSaver, config: Any, messages: list[BaseMessage], name: str = "c2") -> Any:
    put = checkpoint(name, messages=messages)
    put["channel_versions"] = {"__start__": 2, "messages": 2}
    return saver.put(config, put, {"run_id": f"of {name}"}, {"__start__": 2, "messages": 2})


def times(store: MemoryStore, text: str) -> int:
    """How often a text stands in the session of the subgraph."""
    return str([entry.body if isinstance(entry, Record) else entry for entry in store.state("a#sub").entries]).count(
        text
    )


@pytest.mark.parametrize("as_new", [False, True], ids=["remembered", "read"])
def test_what_a_subgraph_is_given_stands_in_its_session_once(store: MemoryStore, as_new: bool) -> None:
    saver = EverturnSaver(store)
    first = given_to_a_subgraph(saver)
    saver.put_writes(first, [("messages", said()), ("n", 1)], "task")
    if as_new:
        saver = EverturnSaver(store)
    goes_on(saver, first, said(5))
    assert [message.text for message in store.get_history("a#sub")] == [f"text {number}" for number in range(5)]
    assert [times(store, f"text {number}") for number in range(5)] == [1] * 5
    for reader in (saver, EverturnSaver(store)):
        latest, begun = reader.list(CHILD)
        assert latest.checkpoint["channel_values"] == {"messages": said(5)}
        assert begun.checkpoint["channel_values"] == {"__start__": GIVEN}
        assert begun.pending_writes == [("task", "messages", said()), ("task", "n", 1)]


def test_a_task_that_is_ahead_of_what_its_subgraph_is_given_writes_it_as_it_is(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    ahead: Any = {"configurable": {**CHILD["configurable"], "checkpoint_id": "c1"}}
    saver.put_writes(ahead, [("messages", said())], "task")
    goes_on(saver, given_to_a_subgraph(saver), said())
    assert times(store, "text 0") == 2
    found = EverturnSaver(store).get_tuple(ahead)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"__start__": GIVEN}
    assert found.pending_writes == [("task", "messages", said())]


def test_a_subgraph_may_be_given_the_same_again(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    saver.put_writes(given_to_a_subgraph(saver), [("messages", said())], "task")
    goes_on(saver, given_to_a_subgraph(saver), said())
    assert times(store, "text 0") == 1
    for reader in (saver, EverturnSaver(store)):
        _, begun, *_ = reader.list(CHILD)
        assert begun.checkpoint["channel_values"] == {"__start__": GIVEN}
        assert begun.pending_writes == [("task", "messages", said())]


@pytest.mark.parametrize("moved", [False, True])
def test_a_fork_from_what_a_subgraph_was_given_says_it_once(store: MemoryStore, moved: bool) -> None:
    saver = EverturnSaver(store)
    first = given_to_a_subgraph(saver)
    if moved:  # then nobody has said it any more
        goes_on(saver, first, said(5), "c0")
        saver.delete_for_runs(["of c0"])
        assert store.get_history("a#sub") == []
    goes_on(saver, first, said(5))
    back = saver.get_tuple(first)
    assert back is not None
    goes_on(saver, back.config, [*said(), AIMessage("other", id="o")], "c3")
    assert [message.text for message in store.get_history("a#sub")] == [*(m.text for m in said()), "other"]
    for reader in (saver, EverturnSaver(store)):
        values = [found.checkpoint["channel_values"] for found in reader.list(CHILD)]
        assert values == [
            {"messages": [*said(), AIMessage("other", id="o")]},
            {"messages": said(5)},
            {"__start__": GIVEN},
        ]


def test_what_only_a_deleted_run_was_given_is_gone_with_it(store: MemoryStore) -> None:
    saver = EverturnSaver(store)
    given_to_a_subgraph(saver)
    saver.delete_for_runs(["r"])
    assert store.sessions().sessions == ()


@pytest.mark.parametrize(
    "given",
    [
        {"messages": [HumanMessage("one"), HumanMessage("two")]},  # they get their names later
        {"messages": [RemoveMessage(id="m0"), *said()]},
        {"messages": said(1)},
        {"messages": "text"},
        said(),
    ],
)
def test_what_else_a_subgraph_is_given_is_not_said(store: MemoryStore, given: Any) -> None:
    saver = EverturnSaver(store)
    given_to_a_subgraph(saver, given)
    assert store.get_history("a#sub") == []
    found = EverturnSaver(store).get_tuple(CHILD)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"__start__": given}
