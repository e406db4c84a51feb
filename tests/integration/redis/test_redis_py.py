"""The private parts of redis-py that we use are where we look for them; and a store works where they are not."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

import everturn
from everturn.backends.redis.transport import redis_py
from everturn.backends.redis.transport.async_connection import OwnConnection
from everturn.backends.redis.transport.async_pool import AsyncPool
from everturn.backends.redis.transport.blocking_connection import BlockingConnection
from everturn.backends.redis.url import async_maker, blocking_maker, driver_options, parse
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, words


def soon() -> float:
    return time.monotonic() + 30


def test_redis_py_still_has_a_socket_where_we_look(server: ValkeyServer) -> None:
    """If this fails, a release of redis-py hides it: docs/decisions/012 says what is slower then, and how to go on."""
    address = parse(server.url)
    connection: Any = blocking_maker(False, driver_options(address, {}))(address.nodes[0])
    assert connection.exchange([("PING",)], soon()) == [b"PONG"]
    assert type(redis_py.socket_of(connection._connection)) is socket.socket
    connection.disconnect()


def test_redis_py_still_has_a_transport_where_we_look(server: ValkeyServer) -> None:
    address = parse(server.url)

    async def main() -> None:
        pool = AsyncPool(address.nodes[0], async_maker(False, driver_options(address, {})), 1)
        connection = await pool.take(soon())
        assert type(connection) is OwnConnection
        assert isinstance(redis_py.transport_of(connection.connection), asyncio.WriteTransport)
        await pool.give_back(connection)
        await pool.close()

    asyncio.run(main())


def test_a_store_works_by_public_methods_where_they_are_hidden(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_py, "socket_of", lambda _: None)
    monkeypatch.setattr(redis_py, "transport_of", lambda _: None)
    large = "x" * 300_000
    with everturn.open(server.url) as store:
        for word in ("1", large):
            say(store, "a", word)
        assert words(store, "a") == ["1", large]

    async def main() -> None:
        async with await everturn.open_async(server.url) as store:
            await store.add_messages("a", [everturn.ChatMessage("user", "3")])
            assert [message.content for message in await store.get_history("a")] == ["1", large, "3"]

    asyncio.run(main())


def test_a_reply_that_never_comes_is_waited_for_until_the_deadline_there_too(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_py, "socket_of", lambda _: None)
    address = parse(server.url)
    connection: BlockingConnection = blocking_maker(False, driver_options(address, {}))(address.nodes[0])
    assert connection.exchange([("PING",)], soon()) == [b"PONG"]
    with pytest.raises(TimeoutError):
        connection.exchange([("BLPOP", "none", 0)], time.monotonic() + 0.2)
    connection.disconnect()
    assert connection.exchange([("PING",)], soon()) == [b"PONG"]
    connection.disconnect()
