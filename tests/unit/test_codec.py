"""Entries come back equal from their stored bodies; damage and values that would not come back are refused."""

from __future__ import annotations

import datetime as dt
import math
from array import array
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn import ChatMessage, CorruptEntry, InvalidInput, Record, Summary, ToolCall
from everturn.core import codec, message_batches
from tests.unit.examples import few, many

texts = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
LIMIT = 16 * 2**20
optional = st.none() | texts
EXTRA = st.none() | st.dictionaries(texts.map("x".__add__), json_values, min_size=1, max_size=2)
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def any_messages(draw: st.DrawFn) -> ChatMessage:
    tool_calls = draw(st.none() | st.lists(json_values, max_size=2))
    content = texts | st.lists(json_values, max_size=3)
    return ChatMessage(
        draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)),
        draw(content | st.none() if tool_calls else content),
        name=draw(optional),
        tool_calls=tool_calls,
        tool_call_id=draw(optional),
        id=draw(optional),
        metadata=draw(st.dictionaries(texts, json_values, max_size=3)),
        extra=draw(EXTRA),
    )


any_entries = st.one_of(
    any_messages(),
    st.builds(
        ToolCall,
        texts,
        json_values,
        call_id=optional,
        result=json_values,
        error=optional,
        duration=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        extra=EXTRA,
    ),
    st.builds(
        Summary,
        texts,
        st.lists(float32s, min_size=1, max_size=4).map(tuple),
        st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
        extra=EXTRA,
    ),
    st.builds(
        Record,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=64).filter(
            lambda kind: kind not in ("message", "tool_call", "summary") and "\0" not in kind
        ),
        json_values,
    ),
)


def identical(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0 and not True."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


@many
@given(entry=any_entries)
def test_what_goes_in_comes_out(entry: Any) -> None:
    draft = codec.encode(entry, "entries[0]", LIMIT)
    back = codec.decode("s", draft.kind, 7, 1.5, draft.checksum, draft.body)
    assert back == entry
    assert (back.seq, back.created_at) == (7, 1.5)
    for name in entry.__struct_fields__:
        if name not in ("seq", "created_at"):
            assert identical(getattr(back, name), getattr(entry, name)), name
    assert codec.encode(back, "entries[0]", LIMIT) == draft  # what came out of a store is stored as the same bytes
    assert draft.dimension == (len(entry.embedding) if isinstance(entry, Summary) else None)


@few
@given(messages=st.lists(any_messages(), min_size=1, max_size=5), data=st.data())
def test_a_batch_decodes_as_each_would(messages: list[ChatMessage], data: st.DataObject) -> None:
    rows = []
    for seq, message in enumerate(messages, 1):
        draft = codec.encode(message, "m", LIMIT)
        rows.append((seq, float(seq), draft.checksum, draft.body))
    reader = message_batches.MessageReader("s")
    reader.take(rows)
    assert reader.messages == messages
    assert [message.seq for message in reader.messages] == list(range(1, len(messages) + 1))
    bad = data.draw(st.integers(0, len(rows) - 1))
    seq, created_at, check, body = rows[bad]
    position = data.draw(st.integers(0, len(body) - 1))
    rows[bad] = (seq, created_at, check, body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :])
    with pytest.raises(CorruptEntry) as caught:
        message_batches.MessageReader("s").take(rows)
    assert (caught.value.session_id, caught.value.seq) == ("s", seq)
    skipping = message_batches.MessageReader("s", "skip")
    skipping.take(rows)
    assert [message.seq for message in skipping.messages] == [row[0] for row in rows if row[0] != seq]


@few
@given(entry=any_entries, data=st.data())
def test_a_changed_bit_or_kind_is_noticed(entry: Any, data: st.DataObject) -> None:
    draft = codec.encode(entry, "e", LIMIT)
    position = data.draw(st.integers(0, 8 * len(draft.body) - 1))
    body = bytearray(draft.body)
    body[position // 8] ^= 1 << position % 8
    for kind, damaged in ((draft.kind, bytes(body)), ("another", draft.body), ("message" * 2, draft.body)):
        if kind != draft.kind or damaged != draft.body:
            with pytest.raises(CorruptEntry):
                codec.decode("s", kind, 1, 0.0, draft.checksum, damaged)


@pytest.mark.parametrize("kind", ["message", "tool_call", "summary", "note"])
@pytest.mark.parametrize("body", [b"", b"nonsense", b"{", b"[1]", b"5", b'{"role":5}', b'{"text":1,"name":2}'])
def test_a_body_that_matches_its_checksum_and_is_no_entry_is_corrupt_too(kind: str, body: bytes) -> None:
    if kind == "note" and body not in (b"", b"nonsense", b"{"):
        assert isinstance(
            codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body), Record
        )  # it may be any JSON
        return
    with pytest.raises(CorruptEntry):
        codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body)


def test_fields_of_a_newer_version_come_back_in_extra() -> None:
    for kind, body in (
        ("message", b'{"role":"user","content":"x","mood":[1]}'),
        ("tool_call", b'{"name":"f","arguments":{},"mood":[1]}'),
        ("summary", b'{"text":"t","embedding":"AACAPw==","covers":[1,2],"mood":[1]}'),
    ):
        entry: Any = codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body)
        assert entry.extra == {"mood": [1]}
        draft = codec.encode(entry, "e", LIMIT)
        assert codec.decode("s", kind, 1, 0.0, draft.checksum, draft.body) == entry


class Colour(str, Enum):  # noqa: UP042 - what callers have
    RED = "red"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


SURROGATE = "a\ud800"
NOT_JSON: list[tuple[Any, str, str]] = [
    (math.nan, "", "NaN"),
    (math.inf, "", "Infinity"),
    (-math.inf, "", "-Infinity"),
    (b"x", "", "bytes"),
    (bytearray(b"x"), "", "bytearray"),
    ((1, 2), "", "tuple"),
    ({1}, "", "set"),
    (frozenset(), "", "frozenset"),
    (1j, "", "complex"),
    (dt.date(2020, 1, 1), "", "date"),
    (dt.timedelta(1), "", "timedelta"),
    (object(), "", "object"),
    (array("f", [1.0]), "", "array"),
    (2**20_000, "", "bits"),
    (-(2**20_000), "", "bits"),
    (SURROGATE, "", "U\\+D800"),
    ([1, {"x": math.nan}], "[1].x", "NaN"),
    ({"k": [(1,)]}, ".k[0]", "tuple"),
    ({1: 2}, "", "key"),
    ({None: 2}, "", "key"),
    ({SURROGATE: 2}, None, "D800"),
    (nested(201), None, "200"),
]


@pytest.mark.parametrize(("value", "where", "what"), NOT_JSON, ids=[f"{i}-{row[2]}" for i, row in enumerate(NOT_JSON)])
@pytest.mark.parametrize(
    ("place", "make"),
    [
        (".metadata.v", lambda value: ChatMessage("user", "x", metadata={"v": value})),
        (".content[0]", lambda value: ChatMessage("user", [value])),
        (".tool_calls[0]", lambda value: ChatMessage("user", "x", tool_calls=[value])),
        (".extra.v", lambda value: ChatMessage("user", "x", extra={"v": value})),
        (".arguments", lambda value: ToolCall("f", value)),
        (".result", lambda value: ToolCall("f", {}, result=value)),
        (".extra.v", lambda value: ToolCall("f", {}, extra={"v": value})),
        (".extra.v", lambda value: Summary("s", (1.0,), (1, 1), extra={"v": value})),
        (".body", lambda value: Record("note", value)),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_path(
    place: str, make: Any, value: Any, where: str | None, what: str
) -> None:
    with pytest.raises(InvalidInput, match=what) as caught:
        codec.encode(make(value), "messages[2]", LIMIT)
    if where is not None:
        assert caught.value.path == f"messages[2]{place}{where}"
    str(caught.value).encode()  # the error itself can be printed


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        (ChatMessage("", "x"), "e.role"),
        (ChatMessage("r" * 65, "x"), "e.role"),
        (ChatMessage(5, "x"), "e.role"),
        (ChatMessage(SURROGATE, "x"), "e.role"),
        (ChatMessage("user", None), "e.content"),
        (ChatMessage("user", None, tool_calls=[]), "e.content"),
        (ChatMessage("user", 5), "e.content"),
        (ChatMessage("user", {"a": 1}), "e.content"),
        (ChatMessage("user", ("a",)), "e.content"),
        (ChatMessage("user", b"x"), "e.content"),
        (ChatMessage("user", SURROGATE), "e.content"),
        (ChatMessage("user", "x", name=5), "e.name"),
        (ChatMessage("user", "x", id=5), "e.id"),
        (ChatMessage("user", "x", tool_call_id=b""), "e.tool_call_id"),
        (ChatMessage("user", "x", tool_calls=({},)), "e.tool_calls"),
        (ChatMessage("user", "x", tool_calls={}), "e.tool_calls"),
        (ChatMessage("user", "x", metadata=None), "e.metadata"),
        (ChatMessage("user", "x", metadata=[]), "e.metadata"),
        (ChatMessage("user", "x", metadata=[("a", 1)]), "e.metadata"),
        (ChatMessage("user", "x", extra={"role": "y"}), "e.extra.role"),
        (ChatMessage("user", "x", extra={"!seq": 1}), "e.extra.!seq"),
        ({"role": "user"}, "e.content"),
        ({"content": "x"}, "e.role"),
        (ToolCall(None, {}), "e.name"),
        (ToolCall("f", {}, call_id=1), "e.call_id"),
        (ToolCall("f", {}, error=1), "e.error"),
        (ToolCall("f", {}, duration="1"), "e.duration"),
        (ToolCall("f", {}, duration=True), "e.duration"),
        (ToolCall("f", {}, duration=math.nan), "e.duration"),
        (ToolCall("f", {}, extra={"name": 1}), "e.extra.name"),
        (Summary(None, (1.0,), (1, 1)), "e.text"),
        (Summary("s", (), (1, 1)), "e.embedding"),
        (Summary("s", "1", (1, 1)), "e.embedding"),
        (Summary("s", b"1234", (1, 1)), "e.embedding"),
        (Summary("s", None, (1, 1)), "e.embedding"),
        (Summary("s", ["x"], (1, 1)), "e.embedding"),
        (Summary("s", [1.0, math.nan], (1, 1)), "e.embedding[1]"),
        (Summary("s", [1e39], (1, 1)), "e.embedding"),
        (Summary("s", (1.0,), (1,)), "e.covers"),
        (Summary("s", (1.0,), (-1, 1)), "e.covers"),
        (Summary("s", (1.0,), (True, 1)), "e.covers"),
        (Summary("s", (1.0,), "12"), "e.covers"),
        (Summary("s", (1.0,), None), "e.covers"),
        (Record("message", 1), "e.kind"),
        (Record("tool_call", 1), "e.kind"),
        (Record("summary", 1), "e.kind"),
        (Record("", 1), "e.kind"),
        (Record("k" * 65, 1), "e.kind"),
        (Record(5, 1), "e.kind"),
        ("text", "e"),
        (None, "e"),
    ],
)
def test_a_field_of_the_wrong_shape_is_refused_with_its_path(entry: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec.encode(entry, "e", LIMIT)
    assert caught.value.path.startswith(path)


@pytest.mark.parametrize("name", ["text", "embedding", "covers"])
def test_a_summarys_own_field_is_no_extra_one(name: str) -> None:
    """Or it would be lost: what is stored under the name is the summary's."""
    with pytest.raises(InvalidInput) as caught:
        codec.encode(Summary("s", (1.0,), (1, 1), extra={name: "mine"}), "e", LIMIT)
    assert caught.value.path == f"e.extra.{name}"


@pytest.mark.parametrize(
    "make",
    [
        lambda extra: ChatMessage("user", "x", extra=extra),
        lambda extra: ToolCall("f", {}, extra=extra),
        lambda extra: Summary("s", (1.0,), (1, 1), extra=extra),
    ],
)
def test_unknown_fields_keep_their_order(make: Any) -> None:
    names = [f"x{number}" for number in (3, 1, 4, 15, 9, 2, 6, 5)]
    draft = codec.encode(make(dict.fromkeys(names)), "e", LIMIT)
    back: Any = codec.decode("s", draft.kind, 1, 0.0, draft.checksum, draft.body)
    assert list(back.extra) == names


def test_the_deepest_nesting_that_is_allowed_comes_back() -> None:
    entry = Record("note", nested(200))
    draft = codec.encode(entry, "e", LIMIT)
    assert codec.decode("s", "note", 1, 0.0, draft.checksum, draft.body) == entry


def test_the_size_limit_is_of_the_stored_bytes() -> None:
    entry = Record("note", "ä" * 10)  # 20 bytes and two quotes
    assert len(codec.encode(entry, "e", 22).body) == 22
    with pytest.raises(InvalidInput, match="22 bytes is over the limit of 21"):
        codec.encode(entry, "e", 21)


@few
@given(number=st.integers(-(2**70), 2**70) | st.integers())
def test_an_integer_comes_back_or_is_refused(number: int) -> None:
    try:
        draft = codec.encode(Record("note", number), "e", LIMIT)
    except InvalidInput:
        assert not -(2**63) <= number < 2**64
        return
    back = codec.decode("s", "note", 1, 0.0, draft.checksum, draft.body)
    assert isinstance(back, Record)
    assert identical(back.body, number)


def test_a_string_enum_is_stored_as_its_value() -> None:
    draft = codec.encode(Record("note", [Colour.RED]), "e", LIMIT)
    assert draft.body == b'["red"]'


def test_a_dict_is_taken_as_a_message_and_unknown_fields_are_kept() -> None:
    draft = codec.encode({"role": "user", "content": "x", "metadata": None, "mood": 1}, "e", LIMIT)
    entry = codec.decode("s", "message", 1, 0.0, draft.checksum, draft.body)
    assert entry == ChatMessage("user", "x", extra={"mood": 1})


@few
@given(a=st.lists(st.binary(max_size=3), max_size=3), b=st.lists(st.binary(max_size=3), max_size=3))
def test_a_digest_tells_parts_apart(a: list[bytes], b: list[bytes]) -> None:
    assert (codec.digest(*a) == codec.digest(*b)) == (a == b)
    assert len(codec.digest(*a)) == 16
