"""Long sessions and many snapshots: what an operation sends does not grow with them, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage
from tests.tiers import first

Opened = Callable[..., Any]
AT_ONCE = 1000


def words(low: int, high: int) -> list[ChatMessage]:
    return [ChatMessage("user", f"message {number}") for number in range(low, high)]


def texts(messages: Any) -> list[str]:
    return [message.content for message in messages]


class Sent:
    """The requests of a store since they were last asked for."""

    def __init__(self, store: Any) -> None:
        self._client = store._operations.backend.client
        self._client.sent = {}

    def since(self) -> int:
        count = sum(self._client.sent.values())
        self._client.sent.clear()
        return count


@pytest.mark.parametrize("length", first(1, [4_000, 100_000]))
def test_a_long_session_costs_what_a_short_one_costs(opened: Opened, length: int) -> None:
    store = opened(timeout=120)
    store.add_messages("a", words(0, AT_ONCE))
    early = store.save_snapshot("a")
    for at in range(AT_ONCE, length, AT_ONCE):
        store.add_messages("a", words(at, at + AT_ONCE))
    sent = Sent(store)
    store.add_messages("a", words(length, length + 2))
    assert sent.since() == 1
    assert texts(store.get_history("a", limit=20)) == texts(words(length - 18, length + 2))
    assert sent.since() == 1
    assert texts(store.get_history("a")) == texts(words(0, length + 2))
    sent.since()
    store.rollback_to_snapshot("a", early)
    assert sent.since() <= 3
    assert texts(store.get_history("a")) == texts(words(0, AT_ONCE))
    store.undo("a")
    other = opened(timeout=120)  # one that remembers nothing
    assert texts(other.get_history("a")) == texts(words(0, length + 2))
    assert other.verify("a").ok


@pytest.mark.parametrize("count", first(1, [200, 10_000]))
def test_each_of_many_snapshots_is_there_and_costs_one_request(opened: Opened, count: int) -> None:
    store = opened(timeout=120)
    sent = Sent(store)
    snapshots = []
    for number in range(count):
        if number % 100 == 0:
            store.add_messages("a", words(number // 100, number // 100 + 1))
        sent.since()
        snapshots.append(store.save_snapshot("a", label=f"{number}"))
        assert sent.since() == 1
    other = opened(timeout=120)
    assert {found.id for found in other.list_snapshots("a")} == {made.id for made in snapshots}
    for number in (0, count // 2, count - 1):
        sent.since()
        store.rollback_to_snapshot("a", snapshots[number])
        assert sent.since() <= 3
        assert texts(other.get_history("a")) == texts(words(0, number // 100 + 1))
    assert other.verify("a").ok
