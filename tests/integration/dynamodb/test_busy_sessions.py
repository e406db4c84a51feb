"""A session that another process never stops writing: every other operation gets its turn, and none loses for ever.

The other is faster each time, as a lone writer is: it has the new head in its hands before anybody else can answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.dynamodb import head_queue
from everturn.backends.dynamodb.stored_form import HEAD, session_key
from tests.store.speech import gives_up_after

Opened = Callable[..., Any]
WRITES = ("transact_write_items",)
READS = ("get_item", "query", "transact_get_items")
OFTEN = 60  # times that the other is faster, at most: then the test is over, one way or the other


def say(store: Any, text: str, **options: Any) -> Any:
    return store.add_messages("a", [ChatMessage("user", text)], **options)


@pytest.fixture
def slow_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nobody is passed over too early."""
    monkeypatch.setattr(head_queue, "STANDS", (0, 60, 60))


class Rival:
    """Writes a turn before each of the requests of these kinds that a store sends."""

    def __init__(self, store: Any, faster: Any, operations: tuple[str, ...]) -> None:
        self.wrote = self.held_up = 0
        self._faster = faster
        self._operations = operations
        client = store._operations.backend.client
        self._send, client.send = client.send, self._watched

    async def _watched(self, operation: str, *args: Any, **options: Any) -> Any:
        if operation in self._operations and self.wrote < OFTEN and not self.held_up:
            try:
                with gives_up_after(1, self._faster):
                    say(self._faster, "faster")
                self.wrote += 1
            except MemoryStoreBackendError as exc:
                if exc.outcome != "not_written":
                    raise
                self.held_up += 1
        return await self._send(operation, *args, **options)


def take_and_release(store: Any) -> None:
    with store.lease("a"):
        pass


def renew(store: Any) -> None:
    store.lease("a").__enter__().renew()


CHANGES: dict[str, Callable[[Any], object]] = {
    "take-and-release-a-lease": take_and_release,
    "take-and-renew-a-lease": renew,
    "erase": lambda store: store.erase("a"),
    "snapshot": lambda store: store.save_snapshot("a"),
    "compact": lambda store: store.compact("a", drop_undo=True),
}


@pytest.mark.usefixtures("slow_to_give_up")
@pytest.mark.parametrize("change", CHANGES)
def test_an_operation_that_would_always_lose_is_let_go_first(opened: Opened, change: str) -> None:
    store, faster = opened(timeout=30), opened(timeout=30)
    for number in range(4):
        say(store, f"{number}")
    store.rollback("a", 2)
    rival = Rival(store, faster, WRITES)
    CHANGES[change](store)
    assert rival.held_up == 1
    assert rival.wrote < 8


READINGS: dict[str, Callable[[Any], object]] = {
    "effects": lambda store: [effect.key for effect in store.get_effects("a")] == ["pay"],
    "history": lambda store: store.get_history("a")[0].content == "first",
    "snapshots": lambda store: len(store.list_snapshots("a")) == 1,
    "changes": lambda store: len(store.changes("a")) > 3,
    "state": lambda store: len(store.state("a").messages) > 1,
    "verify": lambda store: store.verify("a").ok,
    "fork": lambda store: store.fork("a", "b").version == 1,
}


@pytest.mark.parametrize("reading", READINGS)
def test_a_read_is_of_one_moment_though_the_session_never_rests(opened: Opened, reading: str) -> None:
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "first")
    store.begin_effect("a", "pay")
    store.save_snapshot("a")
    rival = Rival(store, faster, READS)
    assert READINGS[reading](store)
    assert 0 < rival.wrote < 20


def test_a_copy_ends_though_the_session_never_rests(opened: Opened) -> None:
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "first")
    store.begin_effect("a", "pay")
    store.save_snapshot("a")
    rival = Rival(store, faster, READS)
    with everturn.open("sqlite://") as target:
        everturn.copy(store, target)
        assert target.get_history("a")[0].content == "first"
        assert len(target.list_snapshots("a")) == len(target.get_effects("a")) == 1
    assert 0 < rival.wrote < 40


def test_effects_that_begin_while_they_are_listed_are_of_one_moment(opened: Opened) -> None:
    """One that begins after another is never shown without it."""
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "first")
    store.begin_effect("a", "0")
    client = store._operations.backend.client
    send, begun = client.send, [1]

    async def watched(operation: str, *args: Any, **options: Any) -> Any:
        if operation in READS and begun[0] < 5:
            faster.begin_effect("a", f"{begun[0]}")
            faster.finish_effect("a", f"{begun[0] - 1}")
            begun[0] += 1
        return await send(operation, *args, **options)

    client.send = watched
    shown = store.get_effects("a")
    assert [effect.key for effect in shown] == [f"{number}" for number in range(len(shown))]
    assert [effect.status for effect in shown[:-2]] == ["finished"] * (len(shown) - 2)


def waiting(store: Any) -> list[str]:
    """The queue of the session."""
    client = store._operations.backend.client
    where = {"pk": {"S": session_key("", "a")}, "sk": {"S": HEAD}}
    item = client._driver.get_item(TableName=client.table, Key=where, ConsistentRead=True)["Item"]
    return [place["S"] for place in item.get("waiting", {}).get("L", [])]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holds()


@pytest.mark.usefixtures("slow_to_give_up")
def test_a_change_that_is_refused_leaves_the_queue(opened: Opened) -> None:
    """It expects a version that is no more. Nobody waits for it then."""
    store, faster = opened(timeout=30), opened(timeout=30)
    receipt = say(store, "first")
    entered: list[str] = []
    rival = Rival(store, faster, WRITES)
    client = store._operations.backend.client
    send = client.send

    async def watched(operation: str, *args: Any, **options: Any) -> Any:
        entered.extend([operation] if operation == "update_item" else [])
        return await send(operation, *args, **options)

    client.send = watched
    rolled = say(store, "second")  # it meets the rival, and the queue
    rival.held_up = 1
    assert entered == ["update_item"]
    with pytest.raises(everturn.VersionConflict):
        say(store, "third", expected_version=receipt)
    assert say(faster, "fourth").version == rolled.version + 1
    wait_until(lambda: waiting(store) == [])


@pytest.mark.usefixtures("slow_to_give_up")
def test_a_change_that_gives_up_leaves_the_queue(opened: Opened) -> None:
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "first")
    put_first(store, "another")
    with gives_up_after(1, faster), pytest.raises(MemoryStoreBackendError, match="other writers"):
        say(faster, "second")
    wait_until(lambda: waiting(store) == ["another"])


@pytest.mark.usefixtures("slow_to_give_up")
def test_a_change_that_is_cancelled_leaves_the_queue(opened: Opened, url: str) -> None:
    store = opened(timeout=30)
    say(store, "first")
    put_first(store, "another")

    async def story() -> None:
        async with await everturn.open_async(url, timeout=60) as slower:
            change = asyncio.ensure_future(say(slower, "second"))
            await asyncio.to_thread(wait_until, lambda: len(waiting(store)) == 2)
            change.cancel()
            with pytest.raises(asyncio.CancelledError):
                await change
            await asyncio.to_thread(wait_until, lambda: waiting(store) == ["another"])

    asyncio.run(story())


def put_first(store: Any, place: str) -> None:
    """Let a place of another process be the first of the queue."""
    client = store._operations.backend.client
    client._driver.update_item(
        TableName=client.table,
        Key={"pk": {"S": session_key("", "a")}, "sk": {"S": HEAD}},
        UpdateExpression="SET waiting = :place",
        ExpressionAttributeValues={":place": {"L": [{"S": place}]}},
    )
