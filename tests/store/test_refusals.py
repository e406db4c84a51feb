"""What would not come back as it went in is refused at once, by its path, and nothing is written."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, InvalidInput, Record, Summary
from tests.store.places import Place
from tests.store.speech import say, user


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
UNSTORABLE = {
    "NaN": (float("nan"), "NaN"),
    "infinity": (float("inf"), "Infinity"),
    "minus infinity": (float("-inf"), "-Infinity"),
    "bytes": (b"x", "bytes"),
    "bytearray": (bytearray(b"x"), "bytearray"),
    "tuple": ((1, 2), "tuple"),
    "set": ({1}, "set"),
    "frozenset": (frozenset({1}), "frozenset"),
    "datetime": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "datetime"),
    "date": (dt.date(2026, 1, 1), "date"),
    "timedelta": (dt.timedelta(1), "timedelta"),
    "decimal": (decimal.Decimal(1), "Decimal"),
    "uuid": (uuid.UUID(int=1), "UUID"),
    "complex": (1j, "complex"),
    "object": (object(), "object"),
    "class": (int, "type"),
    "function": (print, "builtin_function_or_method"),
    "range": (range(3), "range"),
    "a message": (user("x"), "ChatMessage"),
    "lone surrogate": ("a\ud800b", "surrogate"),
    "low surrogate": ("\udc00", "surrogate"),
    "too deep": (nested(201), "nested"),
    "a cycle": (CYCLE, "nested"),
}


@pytest.mark.parametrize("what", list(UNSTORABLE))
def test_what_cannot_be_stored_is_refused_by_path(one_store: Any, what: str) -> None:
    value, word = UNSTORABLE[what]
    with pytest.raises(InvalidInput, match=word) as caught:
        one_store.add_messages("a", [user("0"), user("1"), user("2", metadata={"score": value})])
    assert caught.value.path.startswith("messages[2].metadata.score")
    assert str(caught.value).startswith("messages[2].metadata.score")
    assert one_store.sessions().sessions == ()


@pytest.mark.parametrize("what", list(UNSTORABLE))
def test_what_cannot_be_stored_is_refused_in_a_record(one_store: Any, what: str) -> None:
    value, word = UNSTORABLE[what]
    with pytest.raises(InvalidInput, match=word) as caught:
        one_store.append("a", [Record("r", {"list": [1, value]})])
    assert caught.value.path.startswith("entries[0].body.list[1]")


def test_the_message_is_the_one_in_the_documentation(one_store: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.add_messages("a", [user("0"), user("1"), user("2", metadata={"score": float("nan")})])
    assert str(caught.value) == "messages[2].metadata.score: NaN cannot be stored"


def test_an_error_can_be_printed_whatever_it_is_about(one_store: Any) -> None:
    for metadata in ({"\ud800": 1}, {"k": {"\udfff": 1}}, {"k": "\ud800"}, {"é": "\ud800"}):
        with pytest.raises(InvalidInput) as caught:
            one_store.add_messages("a", [user("x", metadata=metadata)])
        str(caught.value).encode()
        caught.value.path.encode()


@pytest.mark.parametrize("key", [1, None, 1.5, True, b"k", (1, 2)], ids=repr)
def test_a_key_that_is_no_string_is_refused(one_store: Any, key: Any) -> None:
    with pytest.raises(InvalidInput, match="keys are strings") as caught:
        one_store.add_messages("a", [user("x", metadata={"ok": 1, "deep": {key: 1}})])
    assert caught.value.path == "messages[0].metadata.deep"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (ChatMessage("", "x"), "messages[0].role"),
        (ChatMessage("r" * 65, "x"), "messages[0].role"),
        (ChatMessage(None, "x"), "messages[0].role"),
        (ChatMessage("\ud800", "x"), "messages[0].role"),
        (ChatMessage("user", None), "messages[0].content"),
        (ChatMessage("user", 7), "messages[0].content"),
        (ChatMessage("user", b"x"), "messages[0].content"),
        (ChatMessage("user", {"type": "text"}), "messages[0].content"),
        (ChatMessage("user", ({"type": "text"},)), "messages[0].content"),
        (ChatMessage("user", "\ud800"), "messages[0].content"),
        (ChatMessage("user", [{"x": [float("nan")]}]), "messages[0].content[0].x[0]"),
        (ChatMessage("assistant", None, tool_calls=[]), "messages[0].content"),
        (user("x", name=7), "messages[0].name"),
        (user("x", tool_calls={"id": 1}), "messages[0].tool_calls"),
        (user("x", tool_calls=[{"x": b""}]), "messages[0].tool_calls[0].x"),
        (user("x", tool_call_id=7), "messages[0].tool_call_id"),
        (user("x", id=b"1"), "messages[0].id"),
        (user("x", metadata=None), "messages[0].metadata"),
        (user("x", metadata=[1]), "messages[0].metadata"),
        (user("x", metadata="x"), "messages[0].metadata"),
        (user("x", metadata={"a": {"b": (1,)}}), "messages[0].metadata.a.b"),
        (user("x", extra={"y": float("inf")}), "messages[0].extra.y"),
        (user("x", extra={"role": "user"}), "messages[0].extra.role"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({}, "messages[0].role"),
        ("hello", "messages[0]"),
        (None, "messages[0]"),
        (("user", "x"), "messages[0]"),
    ],
)
def test_a_bad_field_is_refused_by_path(one_store: Any, message: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.add_messages("a", [message])
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert one_store.sessions().sessions == ()


@pytest.mark.parametrize("kind", ["", "message", "tool_call", "summary", "k" * 65, 7, None, "\ud800"])
def test_a_kind_of_record_that_is_none_is_refused(one_store: Any, kind: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.append("a", [Record(kind, {})])
    assert caught.value.path == "entries[0].kind"


def test_a_kind_with_nul_is_refused_everywhere(store: Any) -> None:
    """PostgreSQL cannot store it, and SQLite and Redis could: what one backend takes, all take."""
    with pytest.raises(InvalidInput, match="NUL") as caught:
        store.append("a", [Record("no\0te", 1)])
    assert caught.value.path == "entries[0].kind"
    with pytest.raises(InvalidInput, match="NUL"):
        store.state("a", kind="no\0te")
    assert store.state("a").version == 0


def test_an_argument_that_cannot_even_be_shown_is_refused(one_store: Any) -> None:
    deep = nested(100_000)
    with pytest.raises(InvalidInput, match="not list"):
        one_store.add_messages("a", [user("x")], expected_version=deep)
    with pytest.raises(InvalidInput, match="not list"):
        one_store.get_history("a", at=deep)


def test_a_summarys_own_fields_are_no_extra_ones(one_store: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.add_summary("a", Summary("s", [1.0], (1, 1), extra={"text": "other"}))
    assert caught.value.path == "summary.extra.text"


def test_a_refusal_leaves_an_existing_session_as_it_was(one_store: Any) -> None:
    say(one_store, "a", "1")
    before = one_store.state("a")
    with pytest.raises(InvalidInput):
        one_store.add_messages("a", [user("2"), user("3", metadata={"x": {1}})])
    assert one_store.state("a") == before


def test_a_message_over_the_limit_is_refused(one_store: Any) -> None:
    with pytest.raises(InvalidInput, match="max_message_bytes") as caught:
        one_store.add_messages("a", [user("small"), user("x" * (16 * 2**20))])
    assert caught.value.path == "messages[1]"
    assert one_store.sessions().sessions == ()


def test_the_limit_is_configurable_and_counts_bytes(place: Place) -> None:
    store = place.open(max_message_bytes=1000)
    say(store, "a", "x" * 900)
    for text in ("x" * 1001, "é" * 501):
        with pytest.raises(InvalidInput, match="limit of 1,000"):
            say(store, "a", text)


def test_an_invalid_input_is_a_value_error(one_store: Any) -> None:
    with pytest.raises(ValueError, match="session_id"):
        one_store.get_history("")


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "memory.db", "nosuch://x", "://", None, 7, "sqlite:memory.db", "SQLITE://"])
def test_an_unknown_scheme_is_refused_with_those_there_are(url: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        everturn.open(url)
    if isinstance(url, str):
        with pytest.raises(InvalidInput, match="sqlite://"):
            everturn.open(url)


def test_a_path_with_two_slashes_is_refused_with_the_right_way_to_write_it() -> None:
    with pytest.raises(InvalidInput, match=r"write sqlite:///memory\.db"):
        everturn.open("sqlite://memory.db")


@pytest.mark.parametrize("option", ["tll", "Timeout", "wait_replicas"])
def test_an_unknown_option_is_refused_with_those_there_are(option: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{option}: .*namespace.*timeout.*ttl"):
        everturn.open("sqlite://", **{option: 1})
    with pytest.raises(InvalidInput, match=rf"^{option}: "):
        everturn.open(f"sqlite://?{option}=1")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ttl", 0),
        ("ttl", -1),
        ("ttl", "soon"),
        ("ttl", float("nan")),
        ("timeout", 0),
        ("timeout", None),
        ("timeout", float("inf")),
        ("max_message_bytes", -5),
        ("max_message_bytes", "big"),
        ("max_message_bytes", 2**29 + 1),
        ("synchronous", "SOMETIMES"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{option}: "):
        everturn.open("sqlite://", **{option: value})


def test_options_may_stand_in_the_url() -> None:
    with everturn.open("sqlite://?ttl=60&timeout=2.5") as store:
        say(store, "a", "1")
        assert store.info("a").ttl == 60.0
