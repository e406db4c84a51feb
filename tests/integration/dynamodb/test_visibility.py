"""A transaction whose items are seen one by one, as DynamoDB may show them: no read takes that for damage, or for the
whole. The stand-ins show transactions whole, so a veil between the store and them hides what is to be seen later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage, CorruptEntry, MemoryStoreBackendError
from everturn.errors import SnapshotNotFound

Opened = Callable[..., Any]


def say(store: Any, *texts: str, **options: Any) -> Any:
    return store.add_messages("a", [ChatMessage("user", text) for text in texts], **options)


def texts(store: Any, **options: Any) -> list[str]:
    return [message.content for message in store.get_history("a", **options)]


class Veil:
    """Hides items of some kinds, whose keys end so, from the reads of a store; lifted once it was met a few times."""

    def __init__(self, store: Any, kinds: str, ending: str, meetings: int = 3) -> None:
        self.met = 0
        self.refused = 0
        self._kinds, self._ending, self._meetings = kinds, ending, meetings
        client = store._operations.backend.client
        self._send, client.send = client.send, self._veiled

    def _hides(self, key: dict[str, Any]) -> bool:
        sk = key["sk"]["S"]
        return self.met < self._meetings and sk[0] in self._kinds and sk.endswith(self._ending)

    async def _veiled(self, operation: str, parameters: Any, deadline: float, **options: Any) -> Any:
        if operation == "transact_get_items":
            keys = [part["Get"]["Key"] for part in parameters["TransactItems"]]
            if any(map(self._hides, keys)):
                self.met += 1
                self.refused += 1
                raise MemoryStoreBackendError("a transaction is under way", outcome="not_written", transient=True)
        answer = await self._send(operation, parameters, deadline, **options)
        if operation == "query":
            return {**answer, "Items": self._seen(answer["Items"])}
        if operation == "get_item" and "Item" in answer and not self._seen([answer["Item"]]):
            return {}
        return answer

    def _seen(self, items: list[Any]) -> list[Any]:
        seen = [item for item in items if not self._hides(item)]
        self.met += len(seen) < len(items)
        return seen


SECOND, LAST = "000000000002", "000000000003"


@pytest.fixture
def store(opened: Opened) -> Any:
    """With a session of three turns that another store wrote."""
    other = opened(timeout=30)
    for text in ("first", "second", "third"):
        say(other, text)
    return opened(timeout=30)


@pytest.mark.parametrize("options", [{}, {"limit": 2}, {"after": 2}, {"limit": 1}])
@pytest.mark.parametrize("kinds", ["E", "EC"])
def test_a_head_that_is_seen_before_its_entries_is_no_damage(store: Any, kinds: str, options: Any) -> None:
    veil = Veil(store, kinds, LAST, meetings=6)
    expected = ["first", "second", "third"][options.get("after", 0) :][-options.get("limit", 3) :]
    assert texts(store, **options) == expected
    assert veil.refused > 0


def test_an_entry_that_is_lost_is_damage(store: Any) -> None:
    Veil(store, "E", LAST, meetings=10**6)
    backend = store._operations.backend
    send = backend.client.send

    async def without_transaction(operation: str, parameters: Any, *args: Any, **options: Any) -> Any:
        """The entry is gone for everybody, and no transaction is under way."""
        if operation != "transact_get_items":
            return await send(operation, parameters, *args, **options)
        answer = await send("get_item", {"TableName": backend.client.table, "Key": head(parameters)}, *args, **options)
        return {"Responses": [{"Item": answer["Item"]}, *({} for _ in parameters["TransactItems"][1:])]}

    backend.client.send = without_transaction
    with pytest.raises(CorruptEntry):
        store.get_history("a")


def head(parameters: Any) -> Any:
    return parameters["TransactItems"][0]["Get"]["Key"]


def test_changes_that_cannot_be_seen_yet_are_no_damage(store: Any) -> None:
    veil = Veil(store, "C", LAST)
    assert [change.version for change in store.changes("a")] == [3, 2, 1]
    assert veil.refused > 0


def test_a_version_that_cannot_be_seen_yet_is_returned_to(store: Any, opened: Opened) -> None:
    say(opened(timeout=30), "fourth")
    veil = Veil(store, "C", LAST)
    store.rollback("a", 3)
    assert texts(store) == ["first", "second", "third"]
    assert veil.refused > 0


def test_a_snapshot_that_cannot_be_seen_yet_is_found(store: Any, opened: Opened) -> None:
    snapshot = opened(timeout=30).save_snapshot("a")
    say(opened(timeout=30), "fourth")
    veil = Veil(store, "P", "")
    assert [found.id for found in store.list_snapshots("a")] == [snapshot.id]
    assert veil.refused > 0
    veil = Veil(store, "P", "")
    store.rollback_to_snapshot("a", snapshot)
    assert veil.refused > 0
    with pytest.raises(SnapshotNotFound):
        store.rollback_to_snapshot("a", "none")


def test_a_retry_finds_a_change_that_cannot_be_seen_yet(store: Any) -> None:
    """The head names it. If the retry overlooked it, the turn would be stored twice."""
    backend = store._operations.backend
    real, attempts = backend.change, 0

    async def loses_the_first_reply(request: Any, deadline: float) -> Any:
        nonlocal attempts
        attempts += 1
        outcome = await real(request, deadline)
        if attempts == 1:
            Veil(store, "C", "000000000004", meetings=4)
            raise MemoryStoreBackendError("no answer", outcome="unknown", transient=True)
        return outcome

    backend.change = loses_the_first_reply
    assert say(store, "fourth").replayed
    assert texts(store) == ["first", "second", "third", "fourth"]


def test_a_fork_waits_for_entries_that_cannot_be_seen_yet(store: Any) -> None:
    Veil(store, "E", LAST)
    store.fork("a", "b")
    assert [message.content for message in store.get_history("b")] == ["first", "second", "third"]
