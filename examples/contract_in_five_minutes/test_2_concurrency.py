"""Layer 2, callers that collide: threads for a blocking store, tasks for an awaited one."""

import pytest

from everturn import ChatMessage, VersionConflict

WRITERS = 16


def turn(*texts):
    return [ChatMessage(role, text) for role, text in zip(("user", "assistant"), texts, strict=False)]


def test_writers_of_one_session_lose_nothing_and_keep_their_turns_whole(memory):
    turns = [(f"question {number}", f"answer {number}") for number in range(WRITERS)]
    memory.at_once([("add_messages", "a", turn(*texts)) for texts in turns])
    words = memory.words("a")
    found = list(zip(words[::2], words[1::2], strict=True))
    assert sorted(found) == sorted(turns)


def test_writers_of_many_sessions_do_not_meet(memory):
    names = [f"customer-{number}" for number in range(WRITERS)]
    memory.at_once([("add_messages", name, turn(f"I am {name}")) for name in names * 2])
    assert [memory.words(name) for name in names] == [[f"I am {name}"] * 2 for name in names]


def test_of_two_that_read_the_same_state_the_second_to_write_is_told(memory):
    memory.add_messages("a", turn("My order is 1234."))
    version = memory.info("a").version
    memory.add_messages("a", turn("Cancel it."), expected_version=version)
    with pytest.raises(VersionConflict):
        memory.add_messages("a", turn("Send it."), expected_version=version)
    assert memory.words("a") == ["My order is 1234.", "Cancel it."]
