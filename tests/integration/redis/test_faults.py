"""Faults on a real server: nothing acknowledged is lost, nothing is doubled, and every call ends in time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import everturn
from everturn import MemoryStoreBackendError
from everturn.backends.findings import HostileSetting
from everturn.testing.proxy import FaultProxy
from everturn.testing.servers import ValkeyServer, valkey_server
from tests.contract.speech import say, user, words

SLACK = 1.5  # seconds beyond a time-out that a busy machine may need to notice it


@pytest.fixture
def own() -> Iterator[ValkeyServer]:
    """A server of the test's own, to be broken."""
    with valkey_server(appendonly=True, appendfsync="always") as server:
        yield server


def several(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run the work in as many threads; return what they raised."""
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test looks at it
            raised.append(exc)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def exactly_once(store: Any, acknowledged: dict[str, int]) -> None:
    """Every acknowledged text is there once, at its seq, and no text twice."""
    history = {message.seq: message.content for message in store.get_history("a")}
    assert {seq: text for text, seq in acknowledged.items()}.items() <= history.items()
    assert len(set(history.values())) == len(history)


@pytest.mark.parametrize("order", ["SCRIPT FLUSH", "CLIENT KILL TYPE normal SKIPME yes"])
def test_writers_do_not_notice(server: ValkeyServer, order: str) -> None:
    """Scripts flushed and connections killed in a loop: the store's own retry covers both."""
    acknowledged: dict[str, int] = {}
    done = threading.Event()

    def harass() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not done.wait(0.002):
                client.execute_command(*order.split())

    with everturn.open(server.url, timeout=20) as store:

        def write(number: int) -> None:
            for turn in range(40):
                text = f"{number}.{turn}"
                acknowledged[text] = say(store, "a", text).seqs[0]

        trouble = threading.Thread(target=harass)
        trouble.start()
        raised = several(4, write)
        done.set()
        trouble.join()
        assert raised == []
        assert len(acknowledged) == 160
        exactly_once(store, acknowledged)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, _: say(store, "a", "new"),
    "clear": lambda store, _: store.clear("a"),
    "undo": lambda store, _: store.undo("a"),
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "snapshot": lambda store, _: store.save_snapshot("a"),
    "fork": lambda store, _: store.fork("a", "b"),
}


@pytest.mark.parametrize("then", ["close", "silence"])
@pytest.mark.parametrize("kind", list(CHANGES))
def test_a_swallowed_reply_makes_no_second_change(server: ValkeyServer, kind: str, then: Any) -> None:
    with everturn.open(server.url) as direct, FaultProxy(server.url) as proxy:
        for word in "123":
            say(direct, "a", word)
        snapshot = direct.save_snapshot("a")
        say(direct, "a", "4")
        direct.trim("a", max_messages=2)
        version = direct.info("a").version
        with everturn.open(proxy.url, timeout=2.0) as store:
            CHANGES["append"](store, None)  # the script is known by now
            direct.rollback_to_snapshot("a", direct.save_snapshot("a")) if kind == "rollback" else None
            version = direct.info("a").version
            proxy.swallow_next_reply(matching=b"EVALSHA", then=then)
            CHANGES[kind](store, snapshot)
            assert direct.info("a").version == version + (kind != "fork")
            assert direct.verify().ok


def test_a_paused_server_ends_every_call_in_time_and_a_retry_finds_one_copy(own: ValkeyServer) -> None:
    with everturn.open(own.url, timeout=0.5) as store:
        say(store, "a", "before")
        own.pause()
        outcomes: dict[int, str] = {}

        def write(number: int) -> None:
            began = time.monotonic()
            with pytest.raises(MemoryStoreBackendError) as caught:
                say(store, "a", f"{number}", key=f"k{number}")
            assert time.monotonic() - began < 0.5 + SLACK
            outcomes[number] = caught.value.outcome

        assert several(8, write) == []
        began = time.monotonic()
        with pytest.raises(MemoryStoreBackendError):
            store.get_history("a")
        assert time.monotonic() - began < 0.5 + SLACK
        own.resume()
        assert "unknown" in outcomes.values()
        for number in range(8):
            say(store, "a", f"{number}", key=f"k{number}")
        assert sorted(words(store, "a")) == sorted(["before", *map(str, range(8))])


def test_a_paused_server_ends_every_awaited_call_in_time(own: ValkeyServer) -> None:
    async def main() -> None:
        async with await everturn.open_async(own.url, timeout=0.5) as store:
            await store.add_messages("a", [user("before")])
            own.pause()
            began = time.monotonic()
            calls = [store.add_messages("a", [user(str(n))], key=f"k{n}") for n in range(50)]
            ended = await asyncio.gather(*calls, store.get_history("a"), return_exceptions=True)
            assert time.monotonic() - began < 0.5 + SLACK
            assert all(isinstance(error, MemoryStoreBackendError) for error in ended)
            own.resume()
            for number in range(50):
                await store.add_messages("a", [user(str(number))], key=f"k{number}")
            texts = [message.content for message in await store.get_history("a")]
            assert sorted(texts) == sorted(["before", *map(str, range(50))])

    asyncio.run(main())


def test_a_killed_server_loses_nothing_acknowledged(own: ValkeyServer) -> None:
    acknowledged: dict[str, int] = {}
    with everturn.open(own.url, timeout=15) as store:

        def write(number: int) -> None:
            for turn in range(60):
                text = f"{number}.{turn}"
                acknowledged[text] = say(store, "a", text).seqs[0]

        def kill() -> None:
            for _ in range(3):
                seen = len(acknowledged)
                while len(acknowledged) < seen + 20:
                    time.sleep(0.001)
                own.kill()
                own.restart()

        trouble = threading.Thread(target=kill)
        trouble.start()
        raised = several(4, write)
        trouble.join()
        assert raised == []
        assert len(acknowledged) == 240
        exactly_once(store, acknowledged)
        assert store.verify().ok


def test_a_server_that_is_not_there_says_so(own: ValkeyServer) -> None:
    with everturn.open(own.url, timeout=0.3) as store:
        own.kill()
        began = time.monotonic()
        with pytest.raises(MemoryStoreBackendError, match=r"no connection|no answer"):
            say(store, "a", "1")
        assert time.monotonic() - began < 0.3 + SLACK
        with pytest.raises(MemoryStoreBackendError, match="no connection") as caught:
            say(store, "a", "1")
        assert caught.value.outcome == "not_written"
    with pytest.raises(MemoryStoreBackendError, match="no connection"):
        everturn.open(own.url, timeout=0.2)


def test_a_full_server_refuses_without_writing(own: ValkeyServer) -> None:
    with everturn.open(own.url, timeout=1) as store:
        say(store, "a", "1")
        own.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(MemoryStoreBackendError, match="maxmemory") as caught:
            say(store, "a", "2")
        assert caught.value.outcome == "not_written"
        assert words(store, "a") == ["1"]
        own.command("CONFIG", "SET", "maxmemory", "0")
        say(store, "a", "3")
        assert words(store, "a") == ["1", "3"]
        assert store.verify().ok


def test_an_exhausted_pool_is_an_error_in_time(own: ValkeyServer) -> None:
    with everturn.open(own.url, timeout=0.5, max_connections=1) as store:
        say(store, "a", "1")
        own.pause()
        # Twelve at once: three may come one after the other on a busy machine, and each find the connection free.
        raised = several(12, lambda number: say(store, "a", str(number)))
        own.resume()
        assert len(raised) == 12
        assert any("connections stayed busy" in str(error) for error in raised)


def test_replicas_are_waited_for_and_too_few_is_unknown() -> None:
    with (
        valkey_server(replicas=1, appendonly=True) as server,
        everturn.open(server.url, wait_replicas=1, timeout=2) as store,
    ):
        say(store, "a", "1", key="one")
        replica = redis.Redis.from_url(server.replicas[0].url)
        assert replica.xlen("everturn:{:a}:log") == 1
        replica.close()
        server.replicas[0].pause()
        began = time.monotonic()
        with pytest.raises(MemoryStoreBackendError, match="0 of the 1 replicas") as caught:
            say(store, "a", "2", key="two")
        assert time.monotonic() - began < 2 + SLACK
        assert caught.value.outcome == "unknown"
        with pytest.raises(MemoryStoreBackendError):  # a replay proves nothing either
            say(store, "a", "2", key="two")
        server.replicas[0].resume()
        assert say(store, "a", "2", key="two").replayed
        assert words(store, "a") == ["1", "2"]


def test_a_read_only_replica_is_named_as_such() -> None:
    with valkey_server(replicas=1, appendonly=True) as server:
        with pytest.warns(HostileSetting, match="read-only replica"):
            store = everturn.open(server.replicas[0].url, timeout=0.3)
        with store, pytest.raises(MemoryStoreBackendError, match="read-only replica") as caught:
            say(store, "a", "1")
        assert caught.value.outcome == "not_written"
