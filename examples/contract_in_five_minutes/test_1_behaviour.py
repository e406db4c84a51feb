"""Layer 1, one caller at a time: order, isolation, trimming, clearing, expiry, and that what goes in comes out."""

import math

import pytest

from everturn import ChatMessage, InvalidInput


def user(text, **fields):
    return ChatMessage("user", text, **fields)


def assistant(text, **fields):
    return ChatMessage("assistant", text, **fields)


# --- store and retrieve ----------------------------------------------------------------------------------------------


def test_a_session_that_nobody_wrote_to_is_empty(memory):
    assert memory.get_history("nobody") == []


def test_turns_come_back_in_the_order_they_were_written(memory):
    memory.add_messages("a", [user("My order is 1234."), assistant("Thanks!")])
    memory.add_messages("a", [user("Where is it?"), assistant("In Bern.")])
    assert [(message.role, message.content) for message in memory.get_history("a")] == [
        ("user", "My order is 1234."),
        ("assistant", "Thanks!"),
        ("user", "Where is it?"),
        ("assistant", "In Bern."),
    ]


# --- isolation -------------------------------------------------------------------------------------------------------


def test_ids_that_look_alike_are_different_sessions(memory):
    ids = ["a", "A", "a ", "a:", "a:log", "a*", "a?", "{a}", "[a]", "ab", "\u00e1", "a\u0301", "a\n", "%61"]
    for name in ids:
        memory.add_messages(name, [user(f"only for {name!r}")])
    assert [memory.words(name) for name in ids] == [[f"only for {name!r}"] for name in ids]


def test_two_namespaces_on_one_server_do_not_see_each_other(memory):
    red, blue = memory.open(namespace="red"), memory.open(namespace="blue")
    red.add_messages("a", [user("red")])
    blue.add_messages("a", [user("blue")])
    red.clear_all()
    assert (red.words("a"), blue.words("a"), memory.words("a")) == ([], ["blue"], [])


# --- trimming --------------------------------------------------------------------------------------------------------


def test_trim_keeps_the_newest(memory):
    for number in range(10):
        memory.add_messages("a", [user(str(number))])
    memory.trim("a", max_messages=3)
    assert memory.words("a") == ["7", "8", "9"]


def test_trim_keeps_the_system_message(memory):
    memory.add_messages("a", [ChatMessage("system", "Be kind.")])
    for number in range(10):
        memory.add_messages("a", [user(str(number))])
    memory.trim("a", max_messages=3)
    assert memory.words("a") == ["Be kind.", "8", "9"]


def test_trim_does_not_part_a_tool_call_from_its_result(memory):
    memory.add_messages("a", [user("Where is my order?")])
    asked = [{"id": "1", "type": "function", "function": {"name": "locate", "arguments": "{}"}}]
    memory.add_messages("a", [assistant("", tool_calls=asked)])
    memory.add_messages("a", [ChatMessage("tool", "Bern", tool_call_id="1")])
    memory.add_messages("a", [assistant("In Bern.")])
    memory.trim("a", max_messages=2)
    roles = [message.role for message in memory.get_history("a")]
    assert roles in (["assistant"], ["assistant", "tool", "assistant"])


# --- clearing --------------------------------------------------------------------------------------------------------


def test_clear_empties_one_session_and_no_other(memory):
    memory.add_messages("a", [user("1")])
    memory.add_messages("ab", [user("2")])
    memory.clear("a")
    assert (memory.words("a"), memory.words("ab")) == ([], ["2"])


def test_after_a_clear_the_session_goes_on(memory):
    memory.add_messages("a", [user("1")])
    memory.clear("a")
    memory.add_messages("a", [user("2")])
    assert memory.words("a") == ["2"]


def test_clear_all_empties_every_session(memory):
    for name in "abc":
        memory.add_messages(name, [user(name)])
    memory.clear_all()
    assert [memory.words(name) for name in "abc"] == [[], [], []]


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_no_key_is_left_without_an_expiry(memory):
    memory.add_messages("a", [user("1"), assistant("2")])
    memory.save_snapshot("a")
    lifetimes = [memory.redis.ttl(key) for key in memory.redis.keys("*")]
    assert lifetimes
    assert all(0 < lifetime <= 3600 for lifetime in lifetimes)


def test_a_session_is_there_until_its_time_is_up_and_then_gone(memory):
    memory.add_messages("a", [user("1")])
    memory.wait(3590)
    assert memory.words("a") == ["1"]
    memory.wait(20)
    assert memory.words("a") == []
    assert memory.redis.keys("*") == []


def test_writing_renews_the_time_and_reading_does_not(memory):
    memory.add_messages("written", [user("1")])
    memory.add_messages("read", [user("1")])
    memory.wait(1800)
    memory.add_messages("written", [user("2")])
    memory.get_history("read")
    memory.wait(1810)
    assert (memory.words("written"), memory.words("read")) == (["1", "2"], [])


# --- serialization ---------------------------------------------------------------------------------------------------


def test_text_comes_back_character_for_character(memory):
    texts = [
        "",
        " ",
        "\n",
        "  two  spaces  ",
        "CR\r\nLF",
        "nul\0",
        "e\u0301",
        "\U0001f9d1\u200d\U0001f680",
        "x" * 70_000,
    ]
    memory.add_messages("a", [user(text) for text in texts])
    assert memory.words("a") == texts


def test_every_field_of_a_message_comes_back(memory):
    asked = [{"id": "1", "type": "function", "function": {"name": "locate", "arguments": '{"order": 1234}'}}]
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}]
    written = [
        user(parts, name="Ann", id="m-1", metadata={"channel": "web", "score": 0.5, "tags": [None, True, 2**40]}),
        assistant("", tool_calls=asked),
        ChatMessage("tool", "Bern", tool_call_id="1"),
    ]
    memory.add_messages("a", written)
    assert [message.to_dict() for message in memory.get_history("a")] == [message.to_dict() for message in written]


def test_what_cannot_be_stored_is_refused_and_nothing_is_written(memory):
    for value in (math.nan, "\ud800", b"bytes", {1, 2}):
        with pytest.raises(InvalidInput):
            memory.add_messages("a", [user("good"), user("bad", metadata={"value": value})])
    assert memory.words("a") == []
