"""Clients that are given to us, of every kind; what is opened and closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.sentinel
import valkey
import valkey.asyncio

import everturn
from everturn import InvalidInput, MemoryStoreBackendError, Unsupported
from everturn.backends.redis.url import Address, parse
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import (
    ValkeyCluster,
    ValkeyServer,
    valkey_cluster,
    valkey_sentinel,
    valkey_server,
    wait_until,
)
from tests.integration.redis.test_stored_form import full_session
from tests.store.speech import gives_up_after, say, user, words

BLOCKING: dict[str, Callable[[str], Any]] = {
    "redis": redis.Redis.from_url,
    "redis, decoding": lambda url: redis.Redis.from_url(url, decode_responses=True),
    "redis, resp 3": lambda url: redis.Redis.from_url(url, protocol=3),
    "redis, bounded pool": lambda url: redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(url)),
    "valkey": valkey.Valkey.from_url,
    "valkey, decoding": lambda url: valkey.Valkey.from_url(url, decode_responses=True),
    "fakeredis": lambda _: fakeredis.FakeRedis(),
    "fakeredis, decoding": lambda _: fakeredis.FakeRedis(decode_responses=True),
}
AWAITED: dict[str, Callable[[str], Any]] = {
    "redis": redis.asyncio.Redis.from_url,
    "redis, decoding": lambda url: redis.asyncio.Redis.from_url(url, decode_responses=True),
    "valkey": valkey.asyncio.Valkey.from_url,
    "fakeredis": lambda _: fakeredis.FakeAsyncRedis(),
    "fakeredis, decoding": lambda _: fakeredis.FakeAsyncRedis(decode_responses=True),
}


@pytest.mark.parametrize("kind", list(BLOCKING))
def test_a_blocking_client_is_taken_and_stays_open(server: ValkeyServer, kind: str) -> None:
    client = BLOCKING[kind](server.url)
    store = everturn.from_client(client, ttl=100, warnings="off")
    assert isinstance(store, everturn.MemoryStore)
    full_session(store)
    store.fork("a", "b")
    assert words(store, "b") == ["1"]
    assert store.info("a").ttl == 100
    assert store.verify().ok
    store.close()
    assert client.ping()
    with pytest.raises(MemoryStoreBackendError, match="closed"):
        say(store, "a", "2")
    client.close()


@pytest.mark.parametrize("kind", list(AWAITED))
def test_an_awaited_client_is_taken_and_stays_open(server: ValkeyServer, kind: str) -> None:
    async def main() -> None:
        client = AWAITED[kind](server.url)
        store = everturn.from_client(client)
        assert isinstance(store, everturn.AsyncMemoryStore)
        await asyncio.gather(*(store.add_messages("a", [user(str(n))]) for n in range(20)))
        await store.fork("a", "b")
        assert len(await store.get_history("b")) == 20
        assert (await store.verify()).ok
        await store.close()
        assert await client.ping()
        await client.aclose()

    asyncio.run(main())


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with valkey_cluster(masters=3, replicas=0, appendonly=True, requirepass="s3cret%") as cluster:
        yield cluster


def test_blocking_clients_of_a_cluster_are_taken(cluster: ValkeyCluster) -> None:
    for number, kind in enumerate((redis.RedisCluster, valkey.ValkeyCluster)):
        client = kind(host="127.0.0.1", port=cluster.port, password="s3cret%", decode_responses=bool(number))
        store = everturn.from_client(client, namespace=str(number))
        assert isinstance(store, everturn.MemoryStore)
        for name in "abcdef":
            say(store, name, name)
        store.fork("a", "g")
        assert [words(store, name) for name in "abcdefg"] == [[name] for name in "abcdefa"]
        assert store.verify().ok
        store.close()
        assert client.ping(target_nodes="all")
        client.close()


def test_awaited_clients_of_a_cluster_are_taken(cluster: ValkeyCluster) -> None:
    async def main() -> None:
        for number, kind in enumerate((redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster)):
            client = kind(host="127.0.0.1", port=cluster.port, password="s3cret%", decode_responses=bool(number))
            store = everturn.from_client(client, namespace=f"async{number}")
            assert isinstance(store, everturn.AsyncMemoryStore)
            await asyncio.gather(*(store.add_messages(name, [user(name)]) for name in "abcdef" * 5))
            await store.fork("a", "g")
            assert [len(await store.get_history(name)) for name in "abcdefg"] == [5] * 7
            assert (await store.verify()).ok
            await store.close()
            assert await client.ping(target_nodes=client.ALL_NODES)
            await client.aclose()

    asyncio.run(main())


def test_a_client_of_sentinels_is_taken_and_follows_them() -> None:
    with valkey_sentinel(replicas=1, appendonly=True) as watched:
        addresses = [("127.0.0.1", sentinel.port) for sentinel in watched.sentinels]
        client = redis.sentinel.Sentinel(addresses).master_for(watched.name)
        store = everturn.from_client(client, timeout=20)
        say(store, "a", "1")
        wait_until(lambda: watched.replicas[0].command("EXISTS", "everturn:{:a}:log") == 1, "the replica has it")
        watched.kill_master()
        say(store, "a", "2")
        assert words(store, "a") == ["1", "2"]
        store.close()
        client.close()


def test_a_client_that_retries_blindly_doubles_nothing(server: ValkeyServer) -> None:
    with FaultProxy(server.url) as proxy:
        client = redis.Redis.from_url(proxy.url, socket_timeout=0.3)  # redis-py's own retries are on
        store = everturn.from_client(client)
        say(store, "a", "1")
        proxy.swallow_next_reply(matching=b"EVALSHA", then="close")
        say(store, "a", "2")
        assert words(store, "a") == ["1", "2"]
        store.close()
        client.close()


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^client: a builtins\.object"):
        everturn.from_client(object())


def test_an_unknown_option_of_a_client_is_refused() -> None:
    with pytest.raises(InvalidInput, match="namespace"):
        everturn.from_client(fakeredis.FakeRedis(), nonsense=1)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address("single", (("localhost", 6379),))),
        ("redis://h:1/2", Address("single", (("h", 1),), db=2)),
        ("rediss://:p%40ss@h", Address("single", (("h", 6379),), password="p@ss", tls=True)),
        ("redis://u:p@[::1]:7/0", Address("single", (("::1", 7),), "u", "p")),
        ("redis+cluster://a:1,b", Address("cluster", (("a", 1), ("b", 6379)))),
        ("redis+sentinel://a,b:2/svc/3", Address("sentinel", (("a", 26379), ("b", 2)), db=3, service="svc")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    "url", ["redis://a,b", "redis://a/x", "redis://a:x", "redis+cluster://a/1", "redis+sentinel://a"]
)
def test_urls_that_make_no_sense_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        parse(url)


def test_a_wrong_password_is_named() -> None:
    with valkey_server(requirepass="secret", appendonly=True) as server:
        with everturn.open(server.url) as store:
            say(store, "a", "1")
        with pytest.raises(MemoryStoreBackendError, match="password"):
            everturn.open(f"redis://:wrong@{server.address}", timeout=1)


def test_a_store_may_cross_a_fork(server: ValkeyServer) -> None:
    with everturn.open(server.url) as store:
        say(store, "a", "parent")
        child = os.fork()
        if child == 0:
            try:
                for _ in range(50):
                    say(store, "child", "x")
            finally:
                os._exit(0)
        for _ in range(50):
            say(store, "parent", "x")
        assert os.waitpid(child, 0)[1] == 0
        assert [len(words(store, name)) for name in ("child", "parent")] == [50, 50]


def test_an_exhausted_pool_of_a_loop_is_an_error_in_time(server: ValkeyServer) -> None:
    async def main() -> None:
        async with await everturn.open_async(server.url, max_connections=1) as store:
            await store.add_messages("a", [user("1")])
            server.pause()
            try:
                with gives_up_after(0.5, store):
                    ended = await asyncio.gather(*(store.get_history("a") for _ in range(3)), return_exceptions=True)
            finally:
                server.resume()
            assert all(isinstance(error, MemoryStoreBackendError) for error in ended)
            assert any("connections stayed busy" in str(error) for error in ended)
            assert len(await store.get_history("a")) == 1

    asyncio.run(main())


def test_what_redis_cannot_do_says_what_to_use_instead(store: Any) -> None:
    with pytest.raises(Unsupported, match=r"session_id|sessions\(\)"):
        store.find("x")
    with pytest.raises(Unsupported, match="changed_at"):
        store.sessions(order="recent")
    say(store, "a", "needle", "hay")
    assert [match.entry.content for match in store.find("NEEDLE", session_id="a")] == ["needle"]


def test_a_cancelled_change_is_seen_through_or_never_sent(server: ValkeyServer) -> None:
    async def main() -> None:
        # Whoever waits for an outcome that has come already waits for all of this, and the test does not end.
        async with await everturn.open_async(server.url, timeout=3600) as store, asyncio.timeout(60):
            await store.add_messages("a", [user("0")])
            for number in range(200):
                task = asyncio.create_task(store.add_messages("a", [user(str(number))], key=f"k{number}"))
                for _ in range(number % 12):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):  # it may have been quicker
                    await task
                seen = (await store.info("a")).version
                await asyncio.sleep(0)
                assert (await store.info("a")).version == seen  # nothing lands after the caller has been told
            assert (await store.verify()).ok

    asyncio.run(main())
