"""Notes of rows that are to be removed: one that arrives late, or twice, removes nothing that a session has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.dynamodb import new_state
from everturn.backends.dynamodb.stored_form import cleanup_key
from everturn.transfer.protocol import STAGED_FOR

Opened = Callable[..., Any]
Request = tuple[str, dict[str, Any], float]


def say(store: Any, *texts: str) -> Any:
    return store.add_messages("a", [ChatMessage("user", text) for text in texts])


def texts(store: Any, session_id: str = "a") -> list[str]:
    return [message.content for message in store.get_history(session_id)]


def notes(store: Any) -> list[str]:
    backend = store._operations.backend
    found = backend.client._driver.query(
        TableName=backend.client.table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": cleanup_key("")}},
    )
    return [item["sk"]["S"] for item in found["Items"]]


def compact_later(store: Any) -> None:
    """Compact when whatever is staged now is too old to be published."""
    backend = store._operations.backend
    now = backend._now()
    backend._clock = lambda: now + STAGED_FOR + 60
    store.compact()


class Network:
    """Stands between a store and the table. `keeps` chooses the requests that it keeps: their answers are lost."""

    def __init__(self, store: Any) -> None:
        self._client = store._operations.backend.client
        self._send = self._client.send
        self.keeps: Callable[[str, dict[str, Any]], bool] = lambda *_: False
        self.is_awaited: Callable[[str], bool] = lambda _: False
        self.kept: list[Request] = []
        self.arrived = 0
        self._client.send = self.send

    async def send(self, operation: str, parameters: dict[str, Any], deadline: float, **options: Any) -> Any:
        if self.keeps(operation, parameters):
            self.kept.append((operation, parameters, deadline))
            raise MemoryStoreBackendError("no answer", outcome="unknown", transient=True)
        if self.kept and self.is_awaited(operation):  # what was kept arrives just before this one
            self.deliver()
        return await self._send(operation, parameters, deadline, **options)

    def deliver(self) -> None:
        """Let what was kept arrive now."""
        kept, self.kept = self.kept, []
        for operation, parameters, _ in kept:
            getattr(self._client._driver, operation)(**parameters)
            self.arrived += 1


def writes_a_note(parameters: dict[str, Any]) -> bool:
    return f"'{cleanup_key('')}'" in str(parameters)


def once(chosen: Callable[[str, dict[str, Any]], bool]) -> Callable[[str, dict[str, Any]], bool]:
    left = [True]

    def choose(operation: str, parameters: dict[str, Any]) -> bool:
        return bool(left and chosen(operation, parameters) and left.pop())

    return choose


def test_a_large_turn_that_arrives_while_its_retry_is_staged_stays(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_state, "TRANSACTION_BYTES", 1000)
    store = opened(timeout=30)
    say(store, "first")
    network = Network(store)
    network.keeps = once(lambda operation, _: operation == "transact_write_items")
    network.is_awaited = lambda operation: operation == "batch_write_item"
    receipt = say(store, "x" * 5000, "y" * 5000)
    assert (receipt.version, network.arrived) == (2, 1)
    compact_later(store)
    assert texts(store) == ["first", "x" * 5000, "y" * 5000]
    assert notes(store) == []
    assert store.verify().ok


def test_a_note_of_a_large_turn_that_arrives_twice_removes_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may send a request again."""
    monkeypatch.setattr(new_state, "TRANSACTION_BYTES", 1000)
    store = opened(timeout=30)
    say(store, "first")
    sent = record(store)
    say(store, "x" * 5000, "y" * 5000)
    again(store, sent)
    compact_later(store)
    assert texts(store) == ["first", "x" * 5000, "y" * 5000]
    assert notes(store) == []


def test_a_note_of_a_fork_that_arrives_twice_removes_nothing(opened: Opened) -> None:
    store = opened(timeout=30)
    say(store, "first", "second")
    sent = record(store)
    store.fork("a", "b")
    again(store, sent)
    compact_later(store)
    assert texts(store, "b") == ["first", "second"]
    assert notes(store) == []


def record(store: Any) -> list[Request]:
    """List the batches that write a note from now on."""
    client = store._operations.backend.client
    send, sent = client.send, []

    async def watched(operation: str, parameters: dict[str, Any], deadline: float, **options: Any) -> Any:
        if operation == "batch_write_item" and writes_a_note(parameters):
            sent.append((operation, parameters, deadline))
        return await send(operation, parameters, deadline, **options)

    client.send = watched
    return sent


def again(store: Any, sent: list[Request]) -> None:
    for operation, parameters, _ in sent:
        getattr(store._operations.backend.client._driver, operation)(**parameters)


def test_a_note_of_a_copy_that_arrives_late_removes_nothing(opened: Opened, tmp_path: Path) -> None:
    """The answer to it was lost, so it was written again; the first one arrives when the session is published."""
    store = opened(timeout=30)
    long = [letter * 600_000 for letter in "vwxyz"]
    with everturn.open(f"sqlite:///{tmp_path}/source.db") as source:
        for text in long:
            say(source, text)
        network = Network(store)
        network.keeps = once(lambda _, parameters: writes_a_note(parameters) and '"last_seq":4' in str(parameters))
        everturn.copy(source, store)
    assert len(network.kept) == 1
    with suppress(ClientError):  # it is refused: the note that it would change has gone
        network.deliver()
    compact_later(store)
    assert texts(store) == long
    assert notes(store) == []


def test_rows_that_are_staged_while_a_compaction_removes_them_are_not_published(opened: Opened, tmp_path: Path) -> None:
    store, other = opened(timeout=30), opened(timeout=30)
    long = ["x" * 700_000, "y" * 700_000, "z" * 700_000]
    with everturn.open(f"sqlite:///{tmp_path}/source.db") as source:
        for text in long:
            say(source, text)
        network = Network(store)
        compacted: list[bool] = []

        def compact(operation: str, parameters: dict[str, Any]) -> bool:
            """Between the rows and their note: another removes what was staged so far."""
            if writes_a_note(parameters) and '"last_seq":2' in str(parameters) and not compacted:
                compacted.append(True)
                compact_later(other)
            return False

        network.keeps = compact
        everturn.copy(source, store)
    assert compacted
    assert texts(store) == long
    assert store.verify().ok
    compact_later(store)
    assert notes(store) == []
    assert store.verify().ok
