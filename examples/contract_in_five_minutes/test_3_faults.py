"""Layer 3, a Redis that fails: an error that says so. Never an empty history, never a turn that is not there."""

import pytest

from everturn import ChatMessage, CorruptEntry, MemoryStoreBackendError

SOON = 0.05  # seconds that the store goes on trying


@pytest.fixture
def failing(memory):
    """A store whose client raises redis.ConnectionError, on the Redis of `memory` with one message from better days."""
    memory.add_messages("a", [ChatMessage("user", "My order is 1234.")])
    failing = memory.open(timeout=SOON)
    failing.fail()
    return failing


def test_a_write_that_cannot_be_made_says_so_and_is_not_made(failing, memory):
    with pytest.raises(MemoryStoreBackendError, match="connection"):
        failing.add_messages("a", [ChatMessage("user", "Where is it?")])
    failing.recover()
    assert memory.words("a") == ["My order is 1234."]


def test_a_read_that_cannot_be_made_is_no_empty_history(failing, memory):
    with pytest.raises(MemoryStoreBackendError, match="connection"):
        failing.get_history("a")
    failing.recover()
    assert memory.words("a") == ["My order is 1234."]


def test_a_write_whose_answer_was_lost_is_stored_once(memory):
    memory.add_messages("a", [ChatMessage("user", "My order is 1234.")])
    memory.lose_next_reply()
    receipt = memory.add_messages("a", [ChatMessage("user", "Where is it?")])
    assert receipt.replayed  # the store asked again, and was told that it was there
    assert memory.words("a") == ["My order is 1234.", "Where is it?"]


def test_an_entry_that_somebody_deleted_is_no_shorter_history(memory):
    memory.add_messages("a", [ChatMessage("user", "My order is 1234."), ChatMessage("assistant", "Thanks!")])
    (log,) = memory.redis.keys("*:log")
    ((first, _), *_) = memory.redis.xrange(log)
    memory.redis.xdel(log, first)
    with pytest.raises(CorruptEntry):
        memory.get_history("a")
