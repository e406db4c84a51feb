"""Hostile settings of real servers are said out loud when a store opens: by URL or over a client, of every kind."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import everturn
from everturn.backends._shared.server_warnings import HostileSetting
from everturn.backends.redis import open_checks
from everturn.testing.servers import ValkeyServer, valkey_cluster, valkey_server, wait_until
from tests.store.speech import user

EVICTS = {"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}


@pytest.fixture(scope="module")
def hostile() -> Iterator[ValkeyServer]:
    """It evicts, and keeps nothing on disk."""
    with valkey_server(**EVICTS) as server:
        yield server


def said_by(work: Callable[[], Any]) -> list[warnings.WarningMessage]:
    """Every warning, however often it is given."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        work()
    assert all(warning.category is HostileSetting for warning in said)
    return said


def texts(said: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in said]


def blocking_url(url: str) -> None:
    with everturn.open(url) as store:
        for number in range(3):
            store.add_messages("a", [user(str(number))])


def awaited_url(url: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url) as store:
            await asyncio.gather(*(store.add_messages("a", [user(str(number))]) for number in range(3)))

    asyncio.run(main())


def blocking_client(url: str) -> None:
    with redis.Redis.from_url(url) as client, everturn.from_client(client) as store:
        for number in range(3):
            store.add_messages("a", [user(str(number))])


def awaited_client(url: str) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis.from_url(url) as client:
            store = everturn.from_client(client)

            async def write(number: int) -> None:
                await store.add_messages("a", [user(str(number))])

            await asyncio.gather(*map(write, range(3)))
            await store.get_history("a")
            await store.close()

    asyncio.run(main())


WAYS = {way.__name__: way for way in (blocking_url, awaited_url, blocking_client, awaited_client)}


@pytest.mark.parametrize("way", list(WAYS))
def test_each_finding_is_said_once_a_store_whatever_way_it_is_opened(hostile: ValkeyServer, way: str) -> None:
    said = said_by(lambda: WAYS[way](hostile.url))
    evicts, lasts = texts(said)
    assert "maxmemory-policy allkeys-lru" in evicts
    assert "CONFIG SET maxmemory-policy noeviction" in evicts
    assert "nothing is kept on disk" in lasts
    assert "CONFIG SET appendonly yes" in lasts
    assert {warning.filename for warning in said} == {__file__}
    assert len(said_by(lambda: WAYS[way](hostile.url))) == 2  # another store says it again


def test_whoever_knows_can_have_silence(hostile: ValkeyServer) -> None:
    assert said_by(lambda: everturn.open(f"{hostile.url}?warnings=off").close()) == []


def test_a_sound_server_is_not_warned_of(server: ValkeyServer) -> None:
    assert [said_by(lambda way=way: way(server.url)) for way in WAYS.values()] == [[]] * 4  # type: ignore[misc]


def test_a_warning_made_an_error_leaves_nothing_open(hostile: ValkeyServer) -> None:
    def connections() -> int:
        return int(hostile.info("clients")["connected_clients"])

    before = connections()
    with pytest.raises(HostileSetting):
        everturn.open(hostile.url)
    wait_until(lambda: connections() == before, "the store's connections are closed")


def test_a_cluster_is_told_of_once_and_every_client_hears_it() -> None:
    async def awaited(port: int) -> None:
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=port)
        store = everturn.from_client(client)
        await store.add_messages("a", [user("1")])
        await store.add_messages("a", [user("2")])
        await store.close()
        await client.aclose()

    def blocking(port: int) -> None:
        client = redis.RedisCluster(host="127.0.0.1", port=port)
        everturn.from_client(client).close()
        client.close()

    with valkey_cluster(masters=3, replicas=0) as cluster:
        for way in (
            lambda: everturn.open(cluster.url).close(),
            lambda: blocking(cluster.port),
            lambda: asyncio.run(awaited(cluster.port)),
        ):
            (said,) = texts(said_by(way))
            assert all(node.address in said for node in cluster.nodes)
        # One that is down while its replica takes over is no reason not to open.
        cluster.nodes[1].kill()
        (said,) = texts(said_by(lambda: everturn.open(cluster.url, timeout=5).close()))
        assert cluster.nodes[0].address in said
        assert cluster.nodes[1].address not in said


def test_stale_replicas_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_checks, "STALE", 0)  # seconds; a test has no ten of them
    with valkey_server(replicas=1, appendonly=True) as server:
        (replica,) = server.replicas
        assert said_by(lambda: everturn.open(server.url, wait_replicas=1).close()) == []
        replica.pause()
        wait_until(lambda: "lag=0" not in server.info("replication")["slave0"], "the replica lags")
        (stale,) = texts(said_by(lambda: everturn.open(server.url).close()))
        assert f"stale replicas (127.0.0.1:{replica.port})" in stale
        _, few = texts(said_by(lambda: everturn.open(server.url, wait_replicas=1).close()))
        assert "0 replicas follow it, but wait_replicas=1: every change ends as unknown" in few
        replica.resume()
        replica.command("REPLICAOF", "127.0.0.1", 1)  # where nobody listens
        wait_until(lambda: replica.info("replication")["master_link_status"] == "down", "the replica is alone")
        asked, lost = texts(said_by(lambda: everturn.open(replica.url).close()))
        assert "a read-only replica" in asked
        assert "it has lost its master" in lost


def test_replicas_that_a_server_demands_and_has_not_are_told_of() -> None:
    with valkey_server(appendonly=True, min_replicas_to_write=1) as server:
        (said,) = texts(said_by(lambda: everturn.open(server.url).close()))
        assert "min-replicas-to-write 1 is not met: every change is refused" in said
