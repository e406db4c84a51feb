"""Many writers at one session: nothing is lost, and a change that loses to others for a while is let go first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.dynamodb import head_queue
from everturn.backends.dynamodb.stored_form import HEAD, session_key
from tests.integration.children import run
from tests.store.places import Servers
from tests.store.speech import gives_up_after
from tests.tiers import first

Opened = Callable[..., Any]
PK = session_key("", "a")


def say(store: Any, text: str) -> Any:
    return store.add_messages("a", [ChatMessage("user", text)])


def texts(store: Any) -> list[str]:
    return [message.content for message in store.get_history("a")]


class Queue:
    """The queue of the session, by way of a client of our own."""

    def __init__(self, servers: Servers, url: str) -> None:
        self._driver = servers.beside_dynamodb
        self._item = {"TableName": url.partition("://")[2].partition("?")[0], "Key": key()}

    def names(self) -> list[str]:
        item = self._driver.get_item(**self._item, ConsistentRead=True)["Item"]
        return [place["S"] for place in item.get("waiting", {}).get("L", [])]

    def put(self, *names: str) -> None:
        values = {":names": {"L": [{"S": name} for name in names]}}
        self._driver.update_item(
            **self._item, UpdateExpression="SET waiting = :names", ExpressionAttributeValues=values
        )


def key() -> dict[str, Any]:
    return {"pk": {"S": PK}, "sk": {"S": HEAD}}


@pytest.fixture
def queue(servers: Servers, url: str) -> Queue:
    return Queue(servers, url)


def before_each_write(store: Any, do: Callable[[], None]) -> list[str]:
    """Let something happen before each transaction of a store. Returns the operations that it sends from now on."""
    client = store._operations.backend.client
    send, sent = client.send, []

    async def watched(operation: str, *args: Any, **options: Any) -> Any:
        sent.append(operation)
        if operation == "transact_write_items":
            do()
        return await send(operation, *args, **options)

    client.send = watched
    return sent


def test_a_change_that_would_always_lose_is_let_go_first(
    opened: Opened, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another is faster each time, until it meets the queue."""
    monkeypatch.setattr(head_queue, "STANDS", (0, 60, 60))
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "first")
    refused: list[MemoryStoreBackendError] = []

    def be_faster() -> None:
        try:
            with gives_up_after(1, faster):
                say(faster, "faster")
        except MemoryStoreBackendError as exc:
            refused.append(exc)

    sent = before_each_write(store, be_faster)
    assert say(store, "slow").version == 2 + sent.count("transact_write_items") - 1
    assert [error.outcome for error in refused] == ["not_written"]
    assert texts(store)[-1] == "slow"
    assert sent.count("transact_write_items") <= head_queue.QUEUED_AFTER + 1


def test_a_queue_is_empty_once_all_have_written(opened: Opened, queue: Queue) -> None:
    stores = [opened(timeout=60) for _ in range(4)]
    say(stores[0], "first")
    writers = [
        threading.Thread(target=lambda store=store: [say(store, "x") for _ in range(10)])  # type: ignore[misc]
        for store in stores
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(texts(stores[0])) == 41
    assert queue.names() == []


def test_a_place_whose_process_died_is_passed_over(opened: Opened, queue: Queue) -> None:
    store = opened(timeout=30)
    say(store, "first")
    queue.put("dead", "dead, too")
    assert say(store, "second").version == 2
    assert queue.names() == []


def test_a_change_that_is_not_the_first_writes_nothing(opened: Opened, queue: Queue) -> None:
    store = opened(timeout=30)
    say(store, "first")
    queue.put(*(f"{number}" for number in range(head_queue.MOST)))
    with gives_up_after(2, store), pytest.raises(MemoryStoreBackendError, match="other writers") as caught:
        say(store, "second")
    assert caught.value.outcome == "not_written"
    assert texts(store) == ["first"]


def test_a_head_that_is_written_as_a_whole_drops_the_queue(opened: Opened, queue: Queue) -> None:
    """A lease does so. Whoever waited finds no queue, and goes on."""
    store = opened(timeout=30)
    say(store, "first")
    queue.put("somebody")
    with store.lease("a"):
        assert queue.names() == []
        assert say(store, "second").version == 2


def write_turns(url: str, name: str, turns: str) -> None:
    import everturn

    with everturn.open(url, timeout=60) as store:
        for number in range(int(turns)):
            say(store, f"{name} {number}")


@pytest.mark.parametrize(("writers", "turns"), first(1, [(3, 8), (8, 100)]))
def test_processes_at_one_session_lose_nothing(opened: Opened, url: str, writers: int, turns: int) -> None:
    store = opened(timeout=60)
    say(store, "first")
    started = [
        threading.Thread(target=run, args=(write_turns, url, f"{writer}", str(turns))) for writer in range(writers)
    ]
    for each in started:
        each.start()
    for each in started:
        each.join()
    said = texts(store)
    assert sorted(said[1:]) == sorted(f"{writer} {number}" for writer in range(writers) for number in range(turns))
    for writer in range(writers):
        mine = [text for text in said if text.startswith(f"{writer} ")]
        assert mine == [f"{writer} {number}" for number in range(turns)]
