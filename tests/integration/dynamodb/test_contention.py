"""Many writers at one session: nothing is lost, and a change that loses to others for a while is let go first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.dynamodb import head_queue, local_turns
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
    assert sent.count("transact_write_items") == 3  # it enters the queue after the second loss


@pytest.mark.parametrize("writers", [2, 8])
def test_threads_of_a_process_do_not_lose_to_each_other(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    monkeypatch.setattr(local_turns, "STANDS", 60)
    store = opened(timeout=120)
    say(store, "first")
    sent = before_each_write(store, lambda: None)
    together(*[lambda: [say(store, "x") for _ in range(5)]] * writers)
    assert sent == ["transact_write_items"] * 5 * writers
    assert len(texts(store)) == 5 * writers + 1


def test_tasks_of_a_process_do_not_lose_to_each_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_turns, "STANDS", 60)

    async def story() -> None:
        async with await everturn.open_async(url, timeout=120) as store:
            await say(store, "first")
            sent = before_each_write(store, lambda: None)
            told = await asyncio.gather(*(say(store, f"{number}") for number in range(20)))
            assert sent == ["transact_write_items"] * 20
            assert [receipt.version for receipt in told] == [*range(2, 22)]  # in the order in which they came

    asyncio.run(story())


def test_a_task_that_is_cancelled_while_it_waits_for_others_writes_nothing(url: str) -> None:
    async def story() -> None:
        async with await everturn.open_async(url, timeout=120) as store:
            await say(store, "first")
            before_each_write(store, lambda: waiting.cancel() and None)
            others = asyncio.ensure_future(say(store, "second"))
            waiting = asyncio.ensure_future(say(store, "never"))
            assert (await others).version == 2
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await say(store, "third")).version == 3
            assert [message.content for message in await store.get_history("a")] == ["first", "second", "third"]

    asyncio.run(story())


def test_a_change_that_does_not_move_is_passed_over(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is stuck in the network; another of the same process goes on."""
    monkeypatch.setattr(local_turns, "STANDS", 0.05)
    store = opened(timeout=60)
    say(store, "first")
    is_stuck, may_go = threading.Event(), threading.Event()

    def stick() -> None:
        if not is_stuck.is_set():
            is_stuck.set()
            may_go.wait(50)

    before_each_write(store, stick)
    stuck = threading.Thread(target=say, args=(store, "stuck"))
    stuck.start()
    is_stuck.wait(50)
    assert say(store, "second").version == 2
    may_go.set()
    stuck.join()
    assert texts(store) == ["first", "second", "stuck"]


def together(*calls: Callable[[], object]) -> None:
    """Run each in a thread of its own."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_queue_is_empty_once_all_have_written(opened: Opened, queue: Queue) -> None:
    stores = [opened(timeout=60) for _ in range(4)]
    say(stores[0], "first")
    together(*(lambda store=store: [say(store, "x") for _ in range(10)] for store in stores))
    assert len(texts(stores[0])) == 41
    assert len(queue.names()) <= 1  # the last to write may have been amid a run, that nobody waits for
    say(opened(timeout=60), "last")
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


def test_a_change_that_was_passed_over_twice_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process was stopped meanwhile; the others are done when it wakes. It had said that the session is damaged."""
    monkeypatch.setattr(local_turns, "STANDS", 0)

    class Stopped:
        """A client whose thread wakes up after all others have gone."""

        name = "dynamodb://here"

        async def wait_for(self, other: object, seconds: float) -> bool:
            del other, seconds
            turns._places["a"].clear()
            return True

    turns = local_turns.LocalTurns(Stopped())  # type: ignore[arg-type]
    gone: list[str] = []

    async def wait() -> None:
        async with turns.turn("a", time.monotonic() + 60), turns.turn("a", time.monotonic() + 60):
            gone.append("on")

    asyncio.run(wait())
    assert gone == ["on"]
    assert turns._places == {}


def test_a_process_that_writes_on_keeps_its_place_for_some_turns(opened: Opened, queue: Queue) -> None:
    """Each says how many are left, so that those who wait know when to look again."""
    store = opened(timeout=30)
    say(store, "first")
    memory = store._operations.backend._writer._memories.of(PK)
    queue.put("mine", "another")
    seen = []
    for number in range(3):
        memory.name = memory.name or "mine"
        memory.ended = time.monotonic()
        say(store, f"{number}")
        seen.append(queue.names())
    assert seen == [[f"mine*{head_queue.RUN_TURNS // 2 - written}", "another"] for written in (1, 2, 3)]


@pytest.mark.parametrize(("before", "has_rival"), [("another+", True), ("another*2", True), ("another", False)])
def test_a_place_behind_a_process_that_writes_on_is_kept_though_nobody_else_waits(
    opened: Opened, queue: Queue, monkeypatch: pytest.MonkeyPatch, before: str, has_rival: bool
) -> None:
    """That process went to the end of the queue, and is about to be there: two share the cost of a place."""
    monkeypatch.setattr(head_queue, "STANDS", (0, 60, 60))
    monkeypatch.setattr(head_queue, "RESTS", (0, 60, 60))
    store = opened(timeout=30)
    say(store, "first")
    queue.put(before)
    client = store._operations.backend.client
    send = client.send

    async def watched(operation: str, *args: Any, **options: Any) -> Any:
        if operation == "get_item" and before in queue.names():  # it looks, and the other has just left
            queue.put(*queue.names()[1:])
        return await send(operation, *args, **options)

    client.send = watched
    memory = store._operations.backend._writer._memories.of(PK)
    memory.ended = time.monotonic() + 60
    say(store, "second")
    kept = [name.partition("*")[2] for name in queue.names()]
    assert kept == ([f"{head_queue.RUN_TURNS // 2 - 1}"] if has_rival else [])


def test_a_place_behind_one_that_was_passed_over_is_left(opened: Opened, queue: Queue) -> None:
    """Its process has no more to write, or is dead: nobody is about to come."""
    store = opened(timeout=30)
    say(store, "first")
    queue.put("another*2")
    store._operations.backend._writer._memories.of(PK).ended = time.monotonic() + 60
    assert say(store, "second").version == 2
    assert queue.names() == []


def test_a_place_says_how_many_turns_are_before_another() -> None:
    assert [head_queue._turns_of(name, 5) for name in ("a", "b+", "c*2", "d*")] == [1, 5, 2, 5]
    assert {head_queue._base(name) for name in ("a", "a+", "a*2")} == {"a"}


def test_a_request_that_took_long_hardly_lengthens_what_is_expected() -> None:
    """Whoever expects too much sleeps through its turn, and all behind it wait."""
    assert head_queue._usual(0, 4) == 4
    assert head_queue._usual(8, 4) == 4
    assert head_queue._usual(8, 80) == 17
