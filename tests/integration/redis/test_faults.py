"""Faults on a real server, with writers under way: nothing acknowledged is lost, nothing is doubled, all calls end."""

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
from everturn.backends._shared.server_warnings import HostileSetting
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import ValkeyServer, valkey_server, wait_until
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turn, turns, without_keys
from tests.store.speech import say, user, words

SLACK = 1.5  # seconds beyond a time-out that a busy machine may need to notice it


@pytest.fixture
def own() -> Iterator[ValkeyServer]:
    """A server of the test's own, to be broken."""
    with valkey_server(appendonly=True, appendfsync="always", enable_debug_command="yes") as server:
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


def checked(ledger: Ledger, server: Any) -> None:
    """What the writers were told is so, for a store that was opened after all that happened."""
    with everturn.open(server.url, timeout=20) as store:
        ledger.check(store)


# --- connections that end, scripts that are forgotten, replies that are lost -----------------------------------------


@pytest.mark.parametrize("order", ["SCRIPT FLUSH", "CLIENT KILL TYPE normal SKIPME yes"])
@pytest.mark.parametrize("face", FACES)
def test_writers_do_not_notice(server: ValkeyServer, face: str, order: str) -> None:
    """Scripts flushed and connections killed in a loop: the store's own retry covers both."""
    ledger = Ledger()
    with (
        redis.Redis.from_url(server.url) as client,
        Writers(face, server.url, ledger, turns, every_kind, without_keys, count=4, timeout=20),
    ):
        for _ in range(40):
            client.execute_command(*order.split())
            ledger.progress(8)
    assert ledger.errors == []
    checked(ledger, server)


@pytest.mark.parametrize("face", FACES)
def test_replies_swallowed_in_a_loop_double_nothing(server: ValkeyServer, face: str) -> None:
    """Of appends, undos, clears, rollbacks and the rest: whatever is under way."""
    ledger = Ledger()
    with (
        FaultProxy(server.url) as proxy,
        Writers(face, proxy.url, ledger, turns, every_kind, without_keys, count=4, timeout=20),
    ):
        for number in range(20):
            proxy.swallow_next_reply(matching=b"EVALSHA", then="close")
            wait_until(lambda number=number: proxy.swallowed > number, "a reply is swallowed")  # type: ignore[misc]
    assert ledger.errors == []
    checked(ledger, server)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, _: store.add_messages("a", [user("new")]),
    "clear": lambda store, _: store.clear("a"),
    "undo": lambda store, _: store.undo("a"),
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "fork": lambda store, _: store.fork("a", "b"),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", list(CHANGES))
def test_a_reply_that_never_comes_makes_no_second_change(server: ValkeyServer, kind: str, face: str) -> None:
    """The connection stays open and silent: the attempt is given up early enough for another."""

    async def awaited(url: str, snapshot: Any) -> Any:
        async with await everturn.open_async(url, timeout=2.0) as store:
            return await CHANGES[kind](store, snapshot)

    with everturn.open(server.url) as direct, FaultProxy(server.url) as proxy:
        say(direct, "a", "1", "2")
        snapshot = direct.save_snapshot("a")
        say(direct, "a", "3")
        direct.trim("a", max_messages=1)
        CHANGES[kind](direct, snapshot)  # the script is known by now
        direct.erase("b")
        direct.clear("a")
        say(direct, "a", "4")
        direct.trim("a", max_messages=0)
        version = direct.info("a").version
        proxy.swallow_next_reply(matching=b"EVALSHA")
        if face == "tasks":
            receipt = asyncio.run(awaited(proxy.url, snapshot))
        else:
            with everturn.open(proxy.url, timeout=2.0) as store:
                receipt = CHANGES[kind](store, snapshot)
        assert proxy.swallowed == 1
        assert direct.info("a").version == version + (kind != "fork")
        assert receipt.version == (1 if kind == "fork" else version + 1)
        assert direct.verify().ok


@pytest.mark.parametrize("face", FACES)
def test_every_reply_held_back_is_unknown_and_the_retry_finds_one(server: ValkeyServer, face: str) -> None:
    ledger = Ledger()
    with FaultProxy(server.url) as proxy, Writers(face, proxy.url, ledger, turns, every_kind, count=6, timeout=0.5):
        ledger.hang(lambda: proxy.delay(float("inf")), proxy.restore, 24)
    checked(ledger, server)


# --- a server that dies, or says nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize("face", FACES)
def test_a_killed_server_loses_nothing_acknowledged(own: ValkeyServer, face: str) -> None:
    ledger = Ledger()
    with Writers(face, own.url, ledger, turns, every_kind, without_keys, count=6, timeout=15):
        for _ in range(3):
            ledger.progress(60)
            own.kill()
            own.restart()
        ledger.progress(60)
    assert ledger.errors == []  # it was back within the time-out
    checked(ledger, own)


HANGS: dict[str, Callable[[ValkeyServer], None]] = {
    "paused": lambda server: server.pause(),
    "asleep": lambda server: threading.Thread(target=put_to_sleep, args=(server,)).start(),
}


def put_to_sleep(server: ValkeyServer) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=20) as client:
        client.execute_command("DEBUG", "SLEEP", "2.5")


@pytest.mark.parametrize("how", list(HANGS))
@pytest.mark.parametrize("face", FACES)
def test_a_server_that_hangs_leaves_one_copy_of_everything(own: ValkeyServer, face: str, how: str) -> None:
    """Longer than the time-out, with writers under way: an error that tells, then one copy of each."""
    ledger = Ledger()
    with Writers(face, own.url, ledger, turns, every_kind, count=6, timeout=0.5):
        ledger.hang(lambda: HANGS[how](own), own.resume, 24)
    checked(ledger, own)


def test_a_paused_server_ends_every_call_in_time(own: ValkeyServer) -> None:
    with everturn.open(own.url, timeout=0.5) as store:
        say(store, "a", "before")
        own.pause()
        ways: list[Callable[[], Any]] = [
            lambda: store.add_messages("a", turn("1"), key="k"),
            lambda: store.get_history("a"),
            lambda: store.undo("a"),
            lambda: store.clear("a"),
            lambda: store.save_snapshot("a"),
            store.sessions,
            lambda: store.erase("a"),
            lambda: everturn.open(own.url, timeout=0.5),
        ]
        for number, way in enumerate(ways):
            began = time.monotonic()
            with pytest.raises(MemoryStoreBackendError) as caught:
                way()
            assert time.monotonic() - began < 0.5 + SLACK
            assert number or caught.value.outcome == "unknown"  # the first had a connection, and was sent
        own.resume()
        store.add_messages("a", turn("1"), key="k")
        assert words(store, "a") == ["before", "1", "1"]


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
            assert "unknown" in {getattr(error, "outcome", None) for error in ended}
            own.resume()
            for number in range(50):
                await store.add_messages("a", [user(str(number))], key=f"k{number}")
            texts = [message.content for message in await store.get_history("a")]
            assert sorted(texts) == sorted(["before", *map(str, range(50))])

    asyncio.run(main())


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


# --- a server that refuses -------------------------------------------------------------------------------------------


REFUSALS: dict[str, tuple[tuple[str, str], tuple[str, str], str]] = {
    "full": (("maxmemory", "1"), ("maxmemory", "0"), "at its maxmemory; give it more, or erase, trim"),
    "alone": (("min-replicas-to-write", "1"), ("min-replicas-to-write", "0"), "fewer replicas are connected than min-"),
}


@pytest.mark.parametrize("why", list(REFUSALS))
@pytest.mark.parametrize("face", FACES)
def test_a_server_that_refuses_has_not_written(own: ValkeyServer, face: str, why: str) -> None:
    refuse, relent, text = REFUSALS[why]
    ledger = Ledger()
    # One second: an attempt that a busy machine does not answer in time is honestly in doubt, and proves nothing here.
    with Writers(face, own.url, ledger, turns, every_kind, count=4, timeout=1):
        ledger.progress(40)
        own.command("CONFIG", "SET", *refuse)
        ledger.trouble(8)
        with everturn.open(own.url, warnings="off") as store:
            store.get_history("s0")  # reads go on
        own.command("CONFIG", "SET", *relent)
        ledger.progress(40)
    assert {error.outcome for error in ledger.errors} == {"not_written"}
    assert all(text in str(error) for error in ledger.errors)
    checked(ledger, own)


def test_an_exhausted_pool_is_an_error_in_time(own: ValkeyServer) -> None:
    # Two seconds: whoever is not let run for as long as its call may take finds its time up, and not the pool busy.
    with everturn.open(own.url, timeout=2, max_connections=1) as store:
        say(store, "a", "1")
        own.pause()
        # Twelve at once: three may come one after the other on a busy machine, and each find the connection free.
        told = list(map(str, several(12, lambda number: say(store, "a", str(number)))))
        own.resume()
        assert len(told) == 12
        assert any("connections stayed busy" in text for text in told), told


@pytest.mark.parametrize("face", FACES)
def test_a_read_only_replica_is_named_as_such(face: str) -> None:
    async def awaited(url: str) -> None:
        async with await everturn.open_async(url, timeout=2) as store:
            await store.add_messages("a", [user("1")])

    def blocking(url: str) -> None:
        with everturn.open(url, timeout=2) as store:
            say(store, "a", "1")

    with valkey_server(replicas=1, appendonly=True) as server:
        with (
            pytest.warns(HostileSetting, match="a read-only replica"),
            pytest.raises(MemoryStoreBackendError, match="read-only replica; connect to its master") as caught,
        ):
            asyncio.run(awaited(server.replicas[0].url)) if face == "tasks" else blocking(server.replicas[0].url)
        assert caught.value.outcome == "not_written"
