"""The fault proxy, each fault shown with a real Valkey or PostgreSQL behind it."""

from __future__ import annotations

import gc
import math
import os
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import PostgresServer, ValkeyServer, postgres_server, valkey_server, wait_until

BROKEN = (redis.ConnectionError, redis.TimeoutError)


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def proxy(valkey: ValkeyServer) -> Iterator[FaultProxy]:
    valkey.command("FLUSHALL")
    with FaultProxy(valkey.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[redis.Redis]:
    """One warm connection, without the retries that would hide a fault."""
    with connect(proxy) as client:
        client.ping()
        yield client


def connect(proxy: FaultProxy, timeout: float = 30) -> redis.Redis:
    retry = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(proxy.url, single_connection_client=True, retry=retry, socket_timeout=timeout)


def test_without_a_fault_every_byte_passes_both_ways(proxy: FaultProxy, client: redis.Redis) -> None:
    large = os.urandom(3_000_000)

    client.set("key", large)

    assert client.get("key") == large
    assert proxy.bytes_to_server > len(large)
    assert proxy.bytes_to_client > len(large)


def test_its_url_is_the_targets_with_another_port(valkey: ValkeyServer) -> None:
    with FaultProxy(f"postgresql://user:secret@127.0.0.1:{valkey.port}/base?schema=x") as proxy:
        assert proxy.url == f"postgresql://user:secret@127.0.0.1:{proxy.port}/base?schema=x"
    with FaultProxy(valkey.port) as proxy:
        assert proxy.url == f"tcp://127.0.0.1:{proxy.port}"


def test_a_target_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError, match="names no port"):
        FaultProxy("redis://localhost")


def test_cut_drops_every_connection_and_new_ones_are_welcome(proxy: FaultProxy, client: redis.Redis) -> None:
    proxy.cut()

    with pytest.raises(BROKEN):
        client.ping()
    with connect(proxy) as another:
        assert another.ping()
    assert proxy.connections == 2


def test_refuse_turns_new_connections_away_and_lets_the_open_ones_go_on(proxy: FaultProxy, client: redis.Redis) -> None:
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))
    assert client.ping()


def test_restore_accepts_connections_again_on_the_same_port(proxy: FaultProxy, client: redis.Redis) -> None:
    port = proxy.port
    proxy.refuse()
    proxy.cut()

    proxy.restore()

    assert proxy.port == port
    with connect(proxy) as another:
        assert another.ping()


def test_a_delayed_reply_comes_and_its_request_was_carried_out_before(
    proxy: FaultProxy, client: redis.Redis, valkey: ValkeyServer
) -> None:
    proxy.delay(math.inf)
    replies: list[object] = []
    caller = threading.Thread(target=lambda: replies.append(client.incr("count")))
    caller.start()
    wait_until(lambda: valkey.command("GET", "count") == "1", "the request has arrived")
    assert not replies

    proxy.restore()
    caller.join(30)

    assert replies == [1]


def test_a_reply_that_came_just_before_restore_is_not_held_for_ever(valkey: ValkeyServer) -> None:
    with FaultProxy(valkey.url) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        wait_until(lambda: proxy.open_connections == 1, "the proxy has a connection")
        proxy.delay(math.inf)

        async def reply_and_restore() -> None:
            [link] = proxy._links
            proxy._hold(link, b"+late")
            await proxy._restore()  # before the link's own task has had its turn

        proxy._do(reply_and_restore)

        assert client.recv(100) == b"+late"


def test_a_delay_beyond_the_clients_patience_is_a_time_out(proxy: FaultProxy) -> None:
    with connect(proxy, timeout=0.1) as hasty:
        hasty.ping()
        proxy.delay(60)
        with pytest.raises(redis.TimeoutError):
            hasty.ping()


def test_a_short_delay_lets_every_reply_through_in_order(proxy: FaultProxy, client: redis.Redis) -> None:
    proxy.delay(0.02)

    assert [client.incr("count") for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_swallowed_reply_leaves_silence_and_a_request_carried_out(proxy: FaultProxy, valkey: ValkeyServer) -> None:
    with connect(proxy, timeout=0.5) as client:
        client.ping()
        proxy.swallow_next_reply()
        with pytest.raises(redis.TimeoutError):
            client.rpush("list", "item")

    wait_until(lambda: valkey.command("LLEN", "list") == 1, "the request is carried out")
    wait_until(lambda: proxy.swallowed == 1, "the reply is swallowed")


def test_a_swallowed_reply_may_end_in_a_closed_connection(
    proxy: FaultProxy, client: redis.Redis, valkey: ValkeyServer
) -> None:
    proxy.swallow_next_reply(then="close")

    with pytest.raises(redis.ConnectionError):
        client.rpush("list", "item")

    assert valkey.command("LLEN", "list") == 1
    assert proxy.swallowed == 1


def test_the_driver_that_retries_blindly_stores_twice(proxy: FaultProxy, valkey: ValkeyServer) -> None:
    # redis-py#3554: what this proxy is for.
    blind = Retry(NoBackoff(), 3)
    with redis.Redis.from_url(proxy.url, retry=blind, retry_on_error=[redis.ConnectionError]) as client:
        client.ping()
        proxy.swallow_next_reply(then="close")
        assert client.rpush("list", "item") == 2

    assert valkey.command("LRANGE", "list", 0, -1) == ["item", "item"]


def test_only_the_reply_to_a_matching_request_is_swallowed(proxy: FaultProxy, client: redis.Redis) -> None:
    proxy.swallow_next_reply(matching=b"RPUSH", then="close")

    assert client.set("key", "value")
    with pytest.raises(redis.ConnectionError):
        client.rpush("list", "item")
    with connect(proxy) as another:
        assert another.rpush("list", "item") == 2


def test_a_match_that_arrives_in_pieces_counts(proxy: FaultProxy, valkey: ValkeyServer) -> None:
    proxy.swallow_next_reply(matching=b"INCR count", then="close")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
        connection.sendall(b"INCR ")
        wait_until(lambda: proxy.bytes_to_server == 5, "the first piece has passed")
        connection.sendall(b"count\r\n")
        assert connection.recv(100) == b""

    assert valkey.command("GET", "count") == "1"


def test_each_order_swallows_one_reply(proxy: FaultProxy, valkey: ValkeyServer) -> None:
    proxy.swallow_next_reply(matching=b"INCR", then="close")
    proxy.swallow_next_reply(matching=b"INCR", then="close")

    for _ in range(2):
        with connect(proxy) as client, pytest.raises(redis.ConnectionError):
            client.incr("count")
    with connect(proxy) as client:
        assert client.incr("count") == 3


def test_the_reply_to_a_later_request_may_be_the_one_to_swallow(proxy: FaultProxy, client: redis.Redis) -> None:
    before = proxy.requests
    proxy.swallow_next_reply(then="close", after=2)

    assert client.incr("n") == 1
    assert client.incr("n") == 2
    with pytest.raises(BROKEN):
        client.incr("n")

    assert client.get("n") == b"3"
    assert proxy.requests - before >= 4


def test_restore_forgets_a_reply_not_swallowed_yet(proxy: FaultProxy, client: redis.Redis) -> None:
    proxy.swallow_next_reply()

    proxy.restore()

    assert client.ping()
    assert proxy.swallowed == 0


def test_a_server_that_is_down_closes_the_connection() -> None:
    with valkey_server() as server, FaultProxy(server.url) as proxy:
        server.kill()
        with pytest.raises(redis.ConnectionError):
            connect(proxy)


def test_a_server_that_dies_takes_its_connections_along() -> None:
    with valkey_server() as server, FaultProxy(server.url) as proxy, connect(proxy) as client:
        client.ping()
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        wait_until(lambda: proxy.open_connections == 0, "the proxy has let go")


def test_a_client_that_leaves_is_counted_no_more(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.ping()
        assert proxy.open_connections == 1
    wait_until(lambda: proxy.open_connections == 0, "the proxy has let go")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of forks beside threads
def test_cut_reaches_a_client_although_a_forked_child_holds_the_sockets(proxy: FaultProxy, client: redis.Redis) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
    try:
        os.close(reading)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port))
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_client_that_comes_while_the_proxy_closes_leaves_no_socket_open(valkey: ValkeyServer) -> None:
    for _ in range(200):
        proxy = FaultProxy(valkey.url)
        with socket.create_connection(("127.0.0.1", proxy.port)):
            proxy.close()
        del proxy
    gc.collect()  # a socket that is open is a warning, and fails this test


def test_a_closed_proxy_listens_no_more_and_has_no_thread(valkey: ValkeyServer) -> None:
    proxy = FaultProxy(valkey.url)
    client = connect(proxy)
    client.ping()

    proxy.close()
    proxy.close()

    with pytest.raises(BROKEN):
        client.ping()
    client.close()
    assert not any(thread.name == "everturn-fault-proxy" for thread in threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))
    with pytest.raises(RuntimeError, match="closed"):
        proxy.cut()


def test_a_commit_on_postgres_whose_reply_is_swallowed_has_happened(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.url) as proxy, psycopg.connect(postgres.url, autocommit=True) as witness:
        witness.execute("CREATE TABLE committed (n int)")
        with psycopg.connect(proxy.url, autocommit=True) as connection:
            proxy.swallow_next_reply(matching=b"INSERT", then="close")
            with pytest.raises(psycopg.OperationalError):
                connection.execute("INSERT INTO committed VALUES (%s)", [1])

        assert witness.execute("SELECT n FROM committed").fetchall() == [(1,)]
        assert proxy.swallowed == 1


def test_a_cut_in_the_middle_of_a_transaction_on_postgres_rolls_it_back(postgres: PostgresServer) -> None:
    with FaultProxy(postgres.url) as proxy, psycopg.connect(postgres.url, autocommit=True) as witness:
        witness.execute("CREATE TABLE cut (n int)")
        connection = psycopg.connect(proxy.url)
        connection.execute("INSERT INTO cut VALUES (1)")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        connection.close()

        assert witness.execute("SELECT count(*) FROM cut").fetchone() == (0,)
