"""Faults between a store and DynamoDB: lost replies, late requests, throttling, a server that is killed or silent."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import ServerError, dynamodb_server
from tests.store.places import Servers
from tests.store.speech import gives_up_after

Opened = Callable[..., Any]
WRITE = b"TransactWriteItems"


def say(store: Any, session_id: str, *texts: str, **options: Any) -> Any:
    return store.add_messages(session_id, [ChatMessage("user", text) for text in texts], **options)


def texts(store: Any, session_id: str = "a") -> list[str]:
    return [message.content for message in store.get_history(session_id)]


def test_a_reply_that_was_lost_is_found_by_the_retry(opened: Opened, behind_proxy: str, proxy: FaultProxy) -> None:
    store = opened(behind_proxy, timeout=30)
    say(store, "a", "first")
    proxy.swallow_next_reply(matching=WRITE, then="close")
    receipt = say(store, "a", "second")
    assert (receipt.version, receipt.replayed, proxy.swallowed) == (2, True, 1)
    assert texts(store) == ["first", "second"]


def test_a_first_turn_whose_reply_was_lost_is_found_by_the_retry(
    opened: Opened, behind_proxy: str, proxy: FaultProxy
) -> None:
    store = opened(behind_proxy, timeout=30)
    proxy.swallow_next_reply(matching=WRITE, then="close")
    assert say(store, "a", "first").replayed
    assert texts(store) == ["first"]


def kept_append(store: Any, proxy: FaultProxy, *words: str) -> None:
    """Append, but the network keeps the request, and its caller gives up."""
    proxy.keep_next_request(matching=WRITE)
    with gives_up_after(1, store), pytest.raises(MemoryStoreBackendError) as caught:
        say(store, "a", *words)
    assert caught.value.outcome == "unknown"
    assert proxy.kept == 1


def arrived(proxy: FaultProxy, at: Any) -> None:
    """Let the request that was kept arrive, and wait until the server has answered it."""
    before = proxy.bytes_to_client
    proxy.release_requests()
    deadline = time.monotonic() + 30
    while proxy.bytes_to_client == before and proxy.open_connections and time.monotonic() < deadline:
        time.sleep(0.01)
    at.get_history("a")  # a request behind it, which the server answers later


def test_a_request_that_arrives_after_a_rollback_is_not_applied(
    opened: Opened, behind_proxy: str, proxy: FaultProxy
) -> None:
    """It was planned on a head that is no more."""
    late, other = opened(behind_proxy, timeout=20), opened()
    say(late, "a", "first")
    snapshot = other.save_snapshot("a")
    say(other, "a", "second")
    say(late, "a", "third")
    kept_append(late, proxy, "late")
    other.rollback_to_snapshot("a", snapshot)
    arrived(proxy, other)
    assert texts(other) == ["first"]
    assert other.verify().ok


def test_a_request_that_would_begin_a_session_and_arrives_after_an_erasure_does_not(
    opened: Opened, behind_proxy: str, proxy: FaultProxy
) -> None:
    late, other = opened(behind_proxy, timeout=20), opened()
    kept_append(late, proxy, "late")
    other.erase("a")
    arrived(proxy, other)
    assert texts(other) == []


def test_a_request_whose_retry_was_refused_is_not_applied_later(
    opened: Opened, behind_proxy: str, proxy: FaultProxy
) -> None:
    """The lease was in force when the first attempt was planned; its time was over when the retry came."""
    store, other = opened(behind_proxy, timeout=2), opened()
    say(store, "a", "first")
    lease = store.lease("a", seconds=60)
    backend = store._operations.backend
    real, attempts = backend.change, []

    async def change(request: Any, deadline: float) -> Any:
        attempts.append(request)
        if len(attempts) == 1:
            return await real(request, time.monotonic() + 0.3)
        now = backend._now()
        backend._clock = lambda: now + 3600
        return await real(request, deadline)

    backend.change = change
    proxy.keep_next_request(matching=WRITE)
    unanswered = MemoryStoreBackendError("no answer", outcome="unknown", transient=True)
    send = backend.client.send

    async def transient(*args: Any, **more: Any) -> Any:
        try:
            return await send(*args, **more)
        except MemoryStoreBackendError as exc:
            raise (unanswered if exc.outcome == "unknown" else exc) from None

    backend.client.send = transient
    with pytest.raises((everturn.LeaseLost, MemoryStoreBackendError)):
        say(store, "a", "late", lease=lease)
    del backend.client.send, backend.change
    assert len(attempts) >= 2
    arrived(proxy, other)
    assert texts(other) == ["first"]


class Answers:
    """Answers of the driver to the next transactions, before it sends the others."""

    def __init__(self, store: Any, *codes: str) -> None:
        self.left = list(codes)
        driver = store._operations.backend.client._driver
        self._real = driver.transact_write_items
        driver.transact_write_items = self

    def __call__(self, **parameters: Any) -> Any:
        if not self.left:
            return self._real(**parameters)
        code = self.left.pop(0)
        response: dict[str, Any] = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        if "Exception" not in code:
            response["Error"]["Code"] = "TransactionCanceledException"
            response["CancellationReasons"] = [{"Code": code}, *({"Code": "None"} for _ in range(2))]
        raise ClientError(response, "TransactWriteItems")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code",
    [
        "TransactionConflict",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
    ],
)
def test_throttling_and_conflicts_are_waited_out_and_told(
    opened: Opened, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    say(store, "a", "first")
    answers = Answers(store, code, code, code)
    with caplog.at_level("INFO", "everturn.dynamodb"):
        assert not say(store, "a", "second").replayed
    assert answers.left == []
    assert texts(store) == ["first", "second"]
    told = [getattr(record, "event", "") for record in caplog.records]
    assert "throttled" in told


def test_a_table_without_capacity_is_an_error_of_not_written_at_the_time_out(opened: Opened) -> None:
    store = opened(timeout=20)
    say(store, "a", "first")
    Answers(store, *["ThrottlingException"] * 10_000)
    begun = time.monotonic()
    with gives_up_after(0.5, store), pytest.raises(MemoryStoreBackendError, match="no capacity") as caught:
        say(store, "a", "second")
    assert caught.value.outcome == "not_written"
    assert time.monotonic() - begun < 30


def test_a_silent_server_is_an_error_at_the_time_out(opened: Opened, behind_proxy: str, proxy: FaultProxy) -> None:
    store = opened(behind_proxy, timeout=20)
    say(store, "a", "first")
    proxy.keep_next_request(matching=WRITE)
    begun = time.monotonic()
    with gives_up_after(0.5, store), pytest.raises(MemoryStoreBackendError) as caught:
        say(store, "a", "second")
    assert caught.value.outcome == "unknown"
    assert time.monotonic() - begun < 5
    proxy.release_requests()


def test_a_task_that_is_cancelled_waits_for_the_outcome_of_what_it_sent(
    behind_proxy: str, proxy: FaultProxy, opened: Opened
) -> None:
    looking = opened()

    async def run() -> None:
        async with await everturn.open_async(behind_proxy, timeout=20) as store:
            await store.save_context("a", "x", "y")
            proxy.keep_next_request(matching=WRITE)
            task = asyncio.create_task(store.save_context("a", "late", "answer"))
            while not proxy.kept:  # noqa: ASYNC110 - a proxy in another thread counts it
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
            proxy.release_requests()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(looking.get_history("a")) == 4

    asyncio.run(run())


def test_a_killed_server_loses_nothing_that_was_acknowledged() -> None:
    """dynoxide keeps its data in a file; ministack keeps it in memory."""
    try:
        running = dynamodb_server("dynoxide")
        server = running.__enter__()
    except ServerError as exc:
        pytest.skip(str(exc))
    acknowledged: list[tuple[str, str]] = []
    stop = threading.Event()

    def work(name: str) -> None:
        with everturn.open(server.url, timeout=20) as store:
            number = 0
            while not stop.is_set():
                text = f"{name}-{number}"
                say(store, "shared", text, key=text)
                acknowledged.append((name, text))
                number += 1

    try:
        everturn.open(server.url).close()
        workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
        for worker in workers:
            worker.start()
        for _ in range(3):
            seen = len(acknowledged)
            while len(acknowledged) < seen + 15:
                time.sleep(0.01)
            server.kill()
            server.restart()
        stop.set()
        for worker in workers:
            worker.join()
        with everturn.open(server.url, timeout=20) as store:
            said = texts(store, "shared")
            assert {text for _, text in acknowledged} <= {*said}
            assert len(said) == len({*said})
            assert store.verify().ok
    finally:
        stop.set()
        running.__exit__(None, None, None)


def test_a_forked_child_has_connections_of_its_own(servers: Servers, url: str, opened: Opened) -> None:
    import os

    store = opened()
    say(store, "a", "parent")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            say(store, "a", "child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    say(store, "a", "parent again")
    assert texts(store) == ["parent", "child", "parent again"]


def test_a_child_that_is_forked_while_a_thread_holds_a_lock_does_not_wait_for_it(opened: Opened) -> None:
    """The thread is in the parent: in the child nobody would give the lock back."""
    store = opened(timeout=20)
    say(store, "a", "first")
    backend = store._operations.backend
    writer = backend._writer
    with backend._time._lock, writer.heads._lock, writer._turns._lock, backend.client._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends it if it waits for ever
            say(store, "a", "by the child")
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert texts(store) == ["first", "by the child"]
