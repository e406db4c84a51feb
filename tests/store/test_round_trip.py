"""What goes in comes out: any JSON, code point for code point, whatever face and kind of entry it passes through."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import ChatMessage, InvalidInput, Record, Summary, ToolCall
from tests.store.places import Place
from tests.store.speech import assistant, made_up, user
from tests.tiers import examples

text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | text
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=8
)
json_dicts = st.dictionaries(text, json_values, max_size=4)
optional_text = st.none() | text
RESERVED = {"role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata"}
unknown = st.dictionaries(
    text.filter(lambda name: name not in RESERVED and not name.startswith("!")), json_values, max_size=3
)

messages = st.builds(
    lambda extra, **fields: ChatMessage(**fields, extra=extra or None),
    role=text.filter(lambda role: 0 < len(role) <= 64),
    content=text | st.lists(json_values, max_size=3),
    name=optional_text,
    tool_calls=st.none() | st.lists(json_values, max_size=3),
    tool_call_id=optional_text,
    id=optional_text,
    metadata=json_dicts,
    extra=unknown,
)
fresh = (f"session {number}" for number in count())


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0, nor True, and 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and repr(one) == repr(other)


def test_any_json_in_a_record_comes_back(place: Place, store: Any) -> None:
    @made_up(place, value=json_values)
    def check(value: Any) -> None:
        name = next(fresh)
        store.append(name, [Record("r", value)])
        (found,) = store.state(name).records
        assert same(found.body, value)


def test_any_message_comes_back(place: Place, store: Any) -> None:
    @made_up(place, message=messages)
    def check(message: ChatMessage) -> None:
        name = next(fresh)
        store.add_messages(name, [message])
        (found,) = store.get_history(name)
        (as_entry,) = store.state(name).entries
        assert found == as_entry == message
        assert same(found.to_dict(), message.to_dict())


def test_any_turn_comes_back_in_order(place: Place, store: Any) -> None:
    @made_up(place, turn=st.lists(messages, min_size=2, max_size=3))
    def check(turn: list[ChatMessage]) -> None:
        name = next(fresh)
        store.add_messages(name, turn)
        assert store.get_history(name) == turn


def test_a_message_that_came_out_can_go_in_again(place: Place, store: Any) -> None:
    @made_up(place, message=messages)
    def check(message: ChatMessage) -> None:
        name = next(fresh)
        store.add_messages(name, [message])
        store.add_messages(name, store.get_history(name))
        first, second = store.get_history(name)
        assert first == second == message


@settings(max_examples=examples(50), deadline=None)
@given(message=messages)
def test_to_dict_and_from_dict_are_inverse(message: ChatMessage) -> None:
    assert ChatMessage.from_dict(message.to_dict()) == message


@settings(max_examples=examples(50), deadline=None)
@given(message=messages)
def test_a_prompt_has_what_is_said_and_no_marks(message: ChatMessage) -> None:
    """Chat APIs refuse a whole prompt for a field of a message that they do not know."""
    marks = {"id", "metadata"}
    assert same(message.to_prompt(), {name: value for name, value in message.to_dict().items() if name not in marks})


def test_any_tool_call_comes_back(place: Place, store: Any) -> None:
    others = st.fixed_dictionaries({"error": optional_text, "call_id": optional_text, "duration": numbers})

    @made_up(place, tool=text, arguments=json_values, outcome=json_values, others=others)
    def check(tool: str, arguments: Any, outcome: Any, others: Any) -> None:
        name, call = next(fresh), ToolCall(tool, arguments, result=outcome, **others)
        store.add_tool_call(name, call)
        (found,) = store.get_tool_calls(name)
        assert found == call
        assert same([found.arguments, found.result], [arguments, outcome])


def test_any_summary_comes_back(place: Place, store: Any) -> None:
    vectors = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1)

    @made_up(place, said=text, embedding=vectors)
    def check(said: str, embedding: list[float]) -> None:
        name, extra = next(fresh), {"model": said}
        store.add_summary(name, Summary(said, embedding, (1, 2), extra=extra))
        (found,) = store.get_summaries(name)
        assert (found.text, list(found.embedding), found.covers, found.extra) == (said, embedding, (1, 2), extra)


STRINGS = {
    "NUL": "a\0b",
    "controls": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "line ends": "a\r\nb\rc\nd\u2028e\u2029f\x85",
    "astral": "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0010ffff",
    "non-characters": "\ufffe\uffff\ufdd0\U0001fffe",
    "byte order mark": "\ufeffa",
    "combining": "e\u0301 vs é",
    "right to left": "\u202eabc\u202c שלום",
    "json-ish": '{"a": "\\u0041"}\\',
    "empty": "",
    "spaces": "  a  ",
    "private use": "\ue000\uf8ff",
    "escapes": '"\\/\b\f\n\r\t',
}


@pytest.mark.parametrize("name", list(STRINGS))
def test_strings_come_back_code_point_for_code_point(store: Any, name: str) -> None:
    string = STRINGS[name]
    store.add_messages("a", [user(string, metadata={string: string})])
    (found,) = store.get_history("a")
    assert (found.content, found.metadata) == (string, {string: string})


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, -(2**63), 2**63, 2**64 - 1, 0.1, 1.0, -0.0, 1e22, 5e-324, 1e308])
def test_numbers_come_back_as_they_were(store: Any, number: float) -> None:
    store.add_messages("a", [user("x", metadata={"n": number})])
    assert same(store.get_history("a")[0].metadata, {"n": number})


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**30, 10**400, -(10**5000)], ids=lambda n: str(n.bit_length())
)
def test_integers_come_back_or_are_refused(store: Any, number: int) -> None:
    try:
        store.add_messages("a", [user("x", metadata={"n": number})])
    except InvalidInput as exc:
        refused_at = exc.path
        assert refused_at == "messages[0].metadata.n"
        assert store.get_history("a") == []
    else:
        assert same(store.get_history("a")[0].metadata, {"n": number})


def test_every_field_comes_back(store: Any) -> None:
    message = ChatMessage(
        role="assistant",
        content=[{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:..."}}],
        name="bot",
        tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
        tool_call_id="c0",
        id="msg_1",
        metadata={"tokens": 7, "nested": {"deep": [None, True, 1.5]}},
    )
    store.add_messages("a", [message])
    (found,) = store.get_history("a")
    for field in ("role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata"):
        assert getattr(found, field) == getattr(message, field)


def test_unknown_fields_are_kept_in_extra(store: Any) -> None:
    fields = {"role": "user", "content": "x", "refusal": None, "audio": {"id": "a1"}, "seq": 5, "extra": {"a": 1}}
    store.add_messages("a", [fields])
    (found,) = store.get_history("a")
    assert found.extra == {"refusal": None, "audio": {"id": "a1"}, "seq": 5, "extra": {"a": 1}}
    assert found.to_dict() == fields
    assert found.seq == 1


def test_a_message_with_unknown_fields_stands_among_others(store: Any) -> None:
    turn = [user("1"), ChatMessage.from_dict({"role": "user", "content": "2", "x": 1}), user("3")]
    store.add_messages("a", turn)
    assert store.get_history("a") == turn


def test_content_may_be_none_beside_tool_calls(store: Any) -> None:
    message = assistant(None, tool_calls=[{"id": "c1"}])
    store.add_messages("a", [message])
    assert store.get_history("a") == [message]


def test_lists_and_dicts_come_back_in_their_order(store: Any) -> None:
    metadata = {"z": 1, "a": 2, "m": {"y": 1, "b": 2}}
    store.add_messages("a", [user("x", metadata=metadata)])
    found = store.get_history("a")[0].metadata
    assert list(found) == ["z", "a", "m"]
    assert list(found["m"]) == ["y", "b"]


def test_what_the_caller_changes_later_is_not_stored(store: Any) -> None:
    metadata = {"list": [1]}
    store.add_messages("a", [user("x", metadata=metadata)])
    metadata["list"].append(2)
    assert store.get_history("a")[0].metadata == {"list": [1]}


def test_what_a_reader_changes_is_not_stored(store: Any) -> None:
    store.add_messages("a", [user("x", metadata={"list": [1]})])
    store.get_history("a")[0].metadata["list"].append(2)
    assert store.get_history("a")[0].metadata == {"list": [1]}


class Role(StrEnum):
    USER = "user"


class Old(str, Enum):  # noqa: UP042 - the way it was written before StrEnum
    YES = "yes"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize("value", [Role.USER, Old.YES, Level.HIGH])
def test_an_enum_of_strings_or_numbers_comes_back_equal_or_is_refused(store: Any, value: Any) -> None:
    try:
        store.add_messages("a", [user("x", metadata={"v": value, "in": [value]})])
    except InvalidInput:
        assert store.get_history("a") == []
    else:
        assert store.get_history("a")[0].metadata == {"v": value, "in": [value]}


class Name(str, Enum):  # noqa: UP042 - as above: it shows its name, and is its text
    SESSION = "a"
    COPY = "copy of a"
    KIND = "note"
    LABEL = "before"
    KEY = "k1"


def test_a_member_of_an_enumeration_is_its_text_wherever_a_text_is_asked_for(store: Any) -> None:
    store.append(Name.SESSION, [Record(Name.KIND, 1)], key=Name.KEY)
    snapshot = store.save_snapshot(Name.SESSION, Name.LABEL)
    assert snapshot.label == "before"
    assert store.append("a", [Record("note", 1)], key="k1").replayed
    named = type("Id", (str,), {"__str__": lambda _: "another"})(snapshot.id)
    store.rollback_to_snapshot(Name.SESSION, named)
    assert [record.kind for record in store.state("a", at=named).records] == ["note"]
    assert [record.kind for record in store.state("a", kind=Name.KIND).records] == ["note"]
    store.fork(Name.SESSION, Name.COPY)
    assert store.info("copy of a").forked_from.startswith("a")
    assert [info.session_id for info in store.sessions(Name.SESSION).sessions] == ["a"]
    assert [change.kind for change in store.changes(Name.COPY)] == ["fork"]
    store.delete_snapshot("a", named)
    store.erase(Name.SESSION)
    assert [info.session_id for info in store.sessions().sessions] == ["copy of a"]


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Text("x"),
        Whole(3),
        type("Real", (float,), {})(1.5),
        type("Items", (list,), {})([1]),
        type("Fields", (dict,), {})(a=1),
        {Text("k"): 1},
        {Role.USER: 1},
        {Old.YES: 1},
        msgspec.UNSET,
    ],
    ids=["str", "int", "float", "list", "dict", "key", "enum-key", "old-enum-key", "unset"],
)
def test_what_only_looks_like_json_comes_back_equal_or_is_refused(store: Any, value: Any) -> None:
    try:
        store.add_messages("a", [user("x", metadata={"v": value})])
    except InvalidInput as exc:
        refused_at = exc.path
        assert refused_at.startswith("messages[0].metadata")
        assert store.get_history("a") == []
    else:
        assert store.get_history("a")[0].metadata == {"v": value}


def test_nesting_of_two_hundred_comes_back_and_one_more_is_refused(store: Any) -> None:
    value: Any = "deep"
    for _ in range(200):
        value = [value]
    store.append("a", [Record("r", value)])
    assert store.state("a").records[0].body == value
    with pytest.raises(InvalidInput, match="nested"):
        store.append("a", [Record("r", [value])])


@pytest.mark.where(blocking=True)
def test_a_message_of_sixteen_mebibytes_comes_back(store: Any) -> None:
    long = "x" * (16 * 2**20 - 100)
    store.add_messages("a", [user(long)])
    assert store.get_history("a")[0].content == long
