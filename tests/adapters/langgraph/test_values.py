"""What goes into a channel comes out of it, or is refused by name."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import re
import sys
import types
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core import messages as langchain
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

import everturn
from everturn import ChatMessage, InvalidInput, MemoryStore, Unsupported
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.langgraph import EverturnSaver
from everturn.adapters.langgraph.values import ChannelCodec
from tests.adapters.langgraph.scenarios import chat, say
from tests.tiers import examples


@dataclasses.dataclass
class Point:
    at: tuple[int, int]
    seen: int = dataclasses.field(default=0, init=False)


class Order(BaseModel):
    number: int
    at: tuple[int, int] = (0, 0)


class Colour(enum.Enum):
    RED = "red"


class Loud(langchain.HumanMessage):
    volume: int = 11


ALLOWED = (Point, Order, Colour, Loud)

FAITHFUL: list[Any] = [
    None,
    True,
    1,
    2**70,
    -1.5,
    float("inf"),
    "text \x00 \U0001f600",
    b"bytes",
    bytearray(b"bytes"),
    [1, [2, {"three": 4}]],
    (1, ("two",), [3]),
    {"a": {"b": (1,)}},
    {"!": "a mark of ours", "of": 1},
    {1: "number", (1, 2): "tuple", None: "none"},
    {1, 2},
    frozenset({("a", 1)}),
    collections.deque([1, 2]),
    dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC),
    dt.date(2026, 11, 1),
    dt.timedelta(days=1, microseconds=1),
    uuid.UUID(int=5),
    decimal.Decimal("1.50"),
    pathlib.Path("/tmp/file"),
    re.compile("a+", re.IGNORECASE),
    Send("node", {"argument": (1,)}),
    Interrupt(value=("sure?",), id="i"),
    Command(goto="node", resume={"a": 1}),
    Colour.RED,
    Order(number=1, at=(1, 2)),
    Point((1, 2)),
    [Order(number=1), {"p": Point((3, 4))}],
]

MESSAGES: list[langchain.BaseMessage] = [
    langchain.HumanMessage("hi"),
    langchain.HumanMessage("hi", id="h1", name="Ann"),
    langchain.HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
    langchain.HumanMessage(["plain", {"type": "text", "text": "mixed"}]),
    langchain.HumanMessage("extra", volume=3),
    langchain.SystemMessage("be kind", additional_kwargs={"k": (1, {"x": None})}),
    langchain.AIMessage(
        "",
        id="a1",
        tool_calls=[
            {"name": "f", "args": {"x": [1, None, 1.0, "é"]}, "id": "c1"},
            {"name": "g", "args": {}, "id": None},
        ],
        invalid_tool_calls=[{"name": "f", "args": "{", "id": "c2", "error": "bad", "type": "invalid_tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
    ),
    langchain.AIMessage("same", tool_calls=[{"name": "f", "args": {"t": (1, 2)}, "id": "c"}]),
    langchain.ToolMessage("42", tool_call_id="c1", artifact={"raw": b"42"}, status="error"),
    langchain.FunctionMessage("r", name="f"),
    langchain.ChatMessage("hm", role="narrator"),
    langchain.ChatMessage("", role=""),
    langchain.RemoveMessage(id="a1"),
    langchain.AIMessageChunk("par", id="a2", chunk_position="last"),
    langchain.HumanMessageChunk("tial"),
    Loud("HI", id="l1"),
]


@pytest.mark.parametrize("value", FAITHFUL, ids=[f"{n}-{type(value).__name__}" for n, value in enumerate(FAITHFUL)])
def test_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    values = ChannelCodec(None, ALLOWED)
    restored = values.decode(values.encode(value))
    assert restored == value
    assert type(restored) is type(value)
    assert repr(restored) == repr(value)


@pytest.mark.parametrize("values", [((1,), (True,)), ([1], [1.0]), ({"a": [0]}, {"a": [False]})], ids=repr)
def test_a_change_of_type_alone_is_a_change(store: MemoryStore, values: tuple[Any, Any]) -> None:
    for value in values:
        put(
            store,
            name=repr(value),
            value=value,
            messages=[langchain.AIMessage("", id="m", response_metadata={"a": value})],
        )
        assert repr(get(store)["value"]) == repr(value)
        assert repr(get(store)["messages"][0].response_metadata) == repr({"a": value})


def test_a_subclass_of_a_plain_type_comes_back_as_that() -> None:
    values = ChannelCodec(None, ())
    assert values.decode(values.encode(collections.defaultdict(int, a=1))) == {"a": 1}
    assert values.decode(values.encode(langchain.AIMessage("text").text)) == "text"


def test_an_array_comes_back() -> None:
    values = ChannelCodec(None, ())
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    restored = values.decode(values.encode(array))
    assert restored.dtype == array.dtype
    assert (restored == array).all()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: repr(message)[:60])
def test_a_message_comes_back_with_its_class_and_every_field(
    store: MemoryStore, message: langchain.BaseMessage
) -> None:
    put(store, messages=[message], other=[message], single=message)
    for values in (get(store), get(store)):  # the second time from memory
        for restored in (values["messages"][0], values["other"][0], values["single"]):
            assert restored == message
            assert type(restored) is type(message)
            assert restored.model_dump() == message.model_dump()
            assert restored is not message
    values["messages"][0].additional_kwargs["changed"] = True
    assert get(store)["messages"] == [message]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(json_values)
def test_whatever_is_made_of_plain_types_comes_back(value: Any) -> None:
    values = ChannelCodec(None, ())
    restored = values.decode(values.encode(value))
    assert repr(restored) == repr(value)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.text(),
    st.none() | st.text(),
    st.lists(
        st.fixed_dictionaries({"name": st.text(), "args": st.dictionaries(st.text(), json_values), "id": st.text()})
    ),
    st.dictionaries(st.text(), json_values),
)
def test_whatever_a_message_holds_comes_back(content: str, name: Any, calls: Any, kwargs: Any) -> None:
    values = ChannelCodec(None, ())
    message = langchain.AIMessage(content, id=name, tool_calls=calls, additional_kwargs=kwargs)
    restored = values.decode_message(values.encode_message(message))
    assert repr(restored.model_dump()) == repr(message.model_dump())


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "cannot be serialized"),
        (lambda: 1, "cannot be serialized"),
        ("lone \ud800", "U+D800"),
        ({"\udfff": 1}, "U+DFFF"),
        (langchain.HumanMessage("\ud800"), "U+D800"),
        (langchain.AIMessage("", tool_calls=[{"name": "f", "args": {"x": "\ud801"}, "id": "c"}]), "U+D801"),
        (Order(number=1), "EverturnSaver(store, allow=[Order])"),
        (Point((1, 2)), "allow=[Point]"),
        (Colour.RED, "allow=[Colour]"),
        ([{"deep": Order(number=1)}], "allow=[Order]"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else type(value).__name__,
)
def test_what_would_not_come_back_is_refused_by_name(store: MemoryStore, value: Any, why: str) -> None:
    put(store, fine=1)
    with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c2', channel 'spoilt': ") as refused:
        put(store, name="c2", spoilt=value)
    assert why in str(refused.value)
    with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c1', channel 'spoilt': "):
        EverturnSaver(store).put_writes(CONFIG, [("spoilt", value)], "task")
    assert get(store) == {"fine": 1}


def test_what_the_store_does_not_take_is_refused_by_name(store: MemoryStore) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    for value in (deep, [deep], {"deep": deep}, long := "x" * 17 * 2**20, [long], {"long": long}):
        with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c1', channel 'spoilt': "):
            put(store, spoil="y" * 50, spoilt=value, more=[1])
        with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c1', channel 'spoilt': "):
            EverturnSaver(store).put_writes(CONFIG, [("fine", "y" * 50), ("spoilt", value)], "task")
    with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c1', channel 'messages': "):
        put(store, messages=[langchain.HumanMessage("fine"), langchain.HumanMessage(long)])
    with pytest.raises(InvalidInput, match=r"thread 't', checkpoint 'c1', metadata: "):
        EverturnSaver(store).put(
            {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
            checkpoint("c1", fine=1),
            {"source": long},
            {"fine": 1},
        )
    with pytest.raises(InvalidInput, match="session_id"):
        EverturnSaver(store).put_writes(
            {"configurable": {"thread_id": "t" * 5000, "checkpoint_id": "c"}}, [("a", 1)], "task"
        )


def test_a_thread_that_met_the_limit_goes_on_where_there_is_more(tmp_path: pathlib.Path) -> None:
    def run(text: str, **options: Any) -> list[str]:
        with everturn.open(f"sqlite:///{tmp_path}/memory.db", **options) as store:
            state = chat(EverturnSaver(store)).invoke(say(text), {"configurable": {"thread_id": "t"}})
            return [message.text for message in state["messages"]]

    run("one")
    with pytest.raises(InvalidInput, match=r"channel .*max_message_bytes=\.\.\."):
        run("x" * 3000, max_message_bytes=2000)
    assert run("x" * 3000, max_message_bytes=20_000)[-2:] == ["x" * 3000, f"answer to {'x' * 3000}"]
    assert run("two", max_message_bytes=2000)[-1] == "answer to two"


def test_a_value_that_its_own_class_changes_is_refused(store: MemoryStore) -> None:
    class Secret(BaseModel):
        kept: int
        changed: Any
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return self is other

        def __repr__(self) -> str:
            return f"Secret at {id(self)}"

    module = types.ModuleType("secrets_of_a_test")
    module.Secret = Secret  # type: ignore[attr-defined]
    Secret.__module__ = module.__name__
    sys.modules[module.__name__] = module
    try:
        with pytest.raises(InvalidInput, match="would come back as something else"):
            put(store, allow=[Secret], spoilt=Secret(kept=1, changed="x"))
    finally:
        del sys.modules[module.__name__]


def test_a_class_that_was_renamed_is_an_error_and_not_a_dict(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, allow=ALLOWED, order=Order(number=1), point=Point((1, 2)))
    named = [(__name__, kind.__name__) for kind in ALLOWED]
    monkeypatch.delattr(sys.modules[__name__], "Order")
    with pytest.raises(Unsupported, match=r"thread 't', checkpoint 'c1', channel 'order': .*renamed"):
        get(store, allow=named)
    monkeypatch.undo()
    monkeypatch.delattr(sys.modules[__name__], "Point")
    with pytest.raises(Unsupported, match=r"channel 'point': "):
        get(store, allow=named)


def test_a_class_that_is_not_allowed_is_not_even_imported(store: MemoryStore) -> None:
    put(store, allow=ALLOWED, order=Order(number=1))
    with pytest.raises(Unsupported, match=r"thread 't', checkpoint 'c1', channel 'order': .*allow=\[Order\]"):
        get(store)


def test_nothing_is_pickled_and_nothing_pickled_is_read() -> None:
    values = ChannelCodec(None, ())
    with pytest.raises(RoundTripError):
        values.decode({"!": "serde", "of": ["pickle", "gARLAS4="]})
    with pytest.raises(RoundTripError, match="newer everturn"):
        values.decode({"!": "something new", "of": 1})


def test_langgraph_can_allow_what_a_graph_declares(store: MemoryStore) -> None:
    allowing = EverturnSaver(store).with_allowlist({(Order.__module__, "Order")})
    allowing.put(CONFIG_NEW, checkpoint("c1", order=Order(number=1)), {}, {"order": 1})
    found = allowing.get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"order": Order(number=1)}


# --- a serializer of one's own ---------------------------------------------------------------------------------------


class Backwards:
    """A cipher that keeps no secret."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "backwards", plaintext[::-1]

    def decrypt(self, _name: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_with_a_serializer_of_ones_own_nothing_is_readable(store: MemoryStore) -> None:
    serde = EncryptedSerializer(Backwards(), JsonPlusSerializer())
    saver = EverturnSaver(store, serde=serde)
    said = [langchain.HumanMessage("a secret", id="1")]
    saver.put(CONFIG_NEW, checkpoint("c1", messages=said, note="a secret"), {"step": 1}, {"messages": 1, "note": 1})
    saver.put_writes(CONFIG, [("note", "a secret")], "task")
    assert store.find("secret") == []
    assert store.get_history("t") == []
    found = EverturnSaver(store, serde=serde).get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": said, "note": "a secret"}
    assert found.pending_writes == [("task", "note", "a secret")]


# --- one checkpoint --------------------------------------------------------------------------------------------------

CONFIG_NEW: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c1"}}


def checkpoint(name: str, **values: Any) -> Any:
    return {
        "v": 4,
        "id": name,
        "ts": "2026-11-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
        "versions_seen": {},
        "updated_channels": None,
    }


def put(store: MemoryStore, *, name: str = "c1", allow: Any = ALLOWED[3:], **values: Any) -> None:
    saver = EverturnSaver(store, allow=allow)
    parent = saver.get_tuple(CONFIG_NEW)
    saver.put(parent.config if parent else CONFIG_NEW, checkpoint(name, **values), {}, dict.fromkeys(values, 1))


def get(store: MemoryStore, allow: Any = ALLOWED[3:]) -> dict[str, Any]:
    found = EverturnSaver(store, allow=allow).get_tuple(CONFIG_NEW)
    assert found is not None
    return found.checkpoint["channel_values"]


def test_a_message_of_another_kind_is_shown_by_its_text(store: MemoryStore) -> None:
    put(store, messages=[Loud("HI", id="l1")])
    shown = store.get_history("t")
    assert [(message.role, message.text) for message in shown] == [("user", "HI")]
    assert isinstance(shown[0], ChatMessage)
