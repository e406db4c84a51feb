"""Connections of our own in an event loop: replies in whatever pieces they come, and what is lost is noticed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import hiredis
import pytest
import redis.asyncio

from everturn import MemoryStoreBackendError
from everturn.backends.redis.errors import Refusal
from everturn.backends.redis.transport import resp
from everturn.backends.redis.transport.async_connection import OwnConnection, RedisPyConnection
from everturn.backends.redis.transport.async_pool import AsyncClientPool, AsyncPool, AsyncTransport
from everturn.backends.redis.transport.login import Login
from everturn.backends.redis.url import Node, login_of, parse
from everturn.testing.servers import ValkeyServer


def soon() -> float:
    return time.monotonic() + 30


def node_and_login(url: str) -> tuple[Node, Login]:
    address = parse(url)
    return address.nodes[0], login_of(address, {})


def in_loop(url: str, work: Callable[[AsyncPool], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            pool = AsyncPool(*node_and_login(url), 2)
            await work(pool)
            await pool.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - of the server, which sets no event
        await asyncio.sleep(0.001)


def pool_of(kind: str, url: str) -> AsyncPool | AsyncClientPool:
    if kind == "ours":
        return AsyncPool(*node_and_login(url), 2)
    return AsyncClientPool(redis.asyncio.ConnectionPool.from_url(url))


@pytest.mark.parametrize("kind", ["ours", "borrowed"])
def test_replies_come_in_order_whatever_their_size(server: ValkeyServer, kind: str) -> None:
    large = b"x" * 3_000_000

    async def work() -> None:
        pool = pool_of(kind, server.url)
        connection = await pool.take(soon())
        assert type(connection) is (OwnConnection if kind == "ours" else RedisPyConnection)
        commands = [("SET", "a", large), ("ECHO", "1"), ("GET", "a"), ("NONSENSE",), ("LRANGE", "none", 0, -1)]
        await connection.send(resp.packed(commands), len(commands))
        await connection.send(resp.packed([("ECHO", "2")]), 1)
        assert await connection.receive(1) == [b"OK"]
        assert await connection.receive(2) == [b"1", large]
        refusal, *rest = await connection.receive(3)
        assert isinstance(refusal, Refusal)
        assert rest == [[], b"2"]
        await pool.drop(connection)
        await pool.close()

    asyncio.run(work())


def test_a_connection_that_is_given_back_is_lent_again(server: ValkeyServer) -> None:
    async def work(pool: AsyncPool) -> None:
        connection = await pool.take(soon())
        await pool.give_back(connection)
        assert await pool.take(soon()) is connection
        await pool.give_back(connection)

    in_loop(server.url, work)


def test_a_connection_that_was_lost_while_idle_is_not_lent_again(server: ValkeyServer, client: Any) -> None:
    async def work(pool: AsyncPool) -> None:
        connection = await pool.take(soon())
        await pool.give_back(connection)
        client.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: connection.is_lost)
        other = await pool.take(soon())
        assert other is not connection
        await other.send(resp.packed([("PING",)]), 1)
        assert await other.receive(1) == [b"PONG"]
        await pool.give_back(other)

    in_loop(server.url, work)


def test_a_connection_that_ends_while_it_logs_in_is_not_lent(server: ValkeyServer) -> None:
    """The server may end it before we have said all we say first: nothing was sent yet, so nothing is in doubt."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def main() -> None:
        async with asyncio.timeout(30), await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening:
            node = listening.sockets[0].getsockname()[:2]
            transport = AsyncTransport(lambda _: AsyncPool(node, Login(None, "secret"), 1))
            for _ in range(2):
                with pytest.raises(MemoryStoreBackendError) as caught:
                    await transport.exchange(node, [("PING",)], soon())
                assert (caught.value.outcome, caught.value.transient) == ("not_written", True)
            await transport.close()

    asyncio.run(main())


def test_who_waits_hears_that_the_connection_is_lost(server: ValkeyServer, client: Any) -> None:
    async def work(pool: AsyncPool) -> None:
        connection = await pool.take(soon())
        await connection.send(resp.packed([("BLPOP", "none", 0)]), 1)
        waiting = asyncio.create_task(connection.receive(1))
        await until(lambda: client.info("clients")["blocked_clients"] == 1)
        client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):  # and who asks afterwards
            await connection.receive(1)
        await pool.drop(connection)

    in_loop(server.url, work)


@pytest.mark.parametrize("kind", ["ours", "borrowed"])
def test_a_wait_ends_at_the_deadline_that_the_connection_was_taken_with(server: ValkeyServer, kind: str) -> None:
    """Also one that came after another with a later deadline, on the same connection."""

    async def work() -> None:
        pool = pool_of(kind, server.url)
        await pool.give_back(await pool.take(soon()))
        for _ in range(2):
            connection = await pool.take(soon())
            await connection.send(resp.packed([("PING",)]), 1)
            assert await connection.receive(1) == [b"PONG"]
            await pool.give_back(connection)
        deadline = time.monotonic() + 0.05
        connection = await pool.take(deadline)
        await connection.send(resp.packed([("BLPOP", "none", 20)]), 1)
        with pytest.raises(TimeoutError):
            await connection.receive(1)
        assert time.monotonic() >= deadline
        await pool.drop(connection)
        await pool.close()

    asyncio.run(asyncio.wait_for(work(), 10))


def test_a_wait_that_outlasts_cancellation_ends_with_the_reply_or_the_deadline(server: ValkeyServer) -> None:
    async def work(pool: AsyncPool) -> None:
        for command, seconds, outcome in (("0.1", 30.0, list), ("20", 0.1, TimeoutError)):
            connection = await pool.take(time.monotonic() + seconds)
            await connection.send(resp.packed([("BLPOP", "none", command)]), 1)
            waiting = asyncio.ensure_future(connection.receive(1, outlasts_cancellation=True))
            for _ in range(3):
                await asyncio.sleep(0)
                waiting.cancel()
            (ended,) = await asyncio.gather(waiting, return_exceptions=True)
            assert isinstance(ended, outcome)
            await pool.drop(connection)

    in_loop(server.url, work)


def test_an_answer_in_no_protocol_is_an_error_and_frees_the_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while received := await reader.read(65_536):
            commands.feed(received)
            while (command := commands.gets()) is not False:
                writer.write(b"no reply\r\n" if command == [b"PING"] else b"+OK\r\n")
        writer.close()

    async def main() -> None:
        async with asyncio.timeout(30), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            node, login = node_and_login(f"redis://127.0.0.1:{port}")
            transport = AsyncTransport(lambda _: AsyncPool(node, login, 1))
            assert await transport.exchange(node, [("SET", "a", "b")], soon()) == [b"OK"]
            for shared in (False, True, False):
                with pytest.raises(MemoryStoreBackendError, match="no answer") as caught:
                    await transport.exchange(node, [("PING",)], soon(), shared=shared)
                assert caught.value.outcome == "unknown"
            assert await transport.exchange(node, [("SET", "a", "b")], soon()) == [b"OK"]
            await transport.close()

    asyncio.run(main())


def out_of_step(kind: str, *, shared: bool) -> list[Any]:
    """What four PINGs hear: the second is answered twice, and before the fourth something comes unasked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while received := await reader.read(65_536):
            commands.feed(received)
            while (command := commands.gets()) is not False:
                if command[0] != b"PING":
                    writer.write(b"+OK\r\n")
                    continue
                asked.append(writer)
                writer.write(b"+%d\r\n" % len(asked) + (b"+STRAY\r\n" if len(asked) == 2 else b""))
        writer.close()

    asked: list[asyncio.StreamWriter] = []

    async def main() -> list[Any]:
        async with asyncio.timeout(30), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}?protocol=2"
            node, login = node_and_login(url.partition("?")[0])
            client = redis.asyncio.Redis.from_url(url, max_connections=1)
            pool = AsyncPool(node, login, 1) if kind == "ours" else AsyncClientPool(client.connection_pool)
            transport = AsyncTransport(lambda _: pool)
            heard: list[Any] = []
            for number in range(4):
                if number == 3:  # unasked, while nobody listens
                    asked[-1].write(b"+STRAY\r\n")
                    await asked[-1].drain()
                    for _ in range(10):
                        await asyncio.sleep(0)  # the loop hears of it
                try:
                    heard.append(await transport.exchange(node, [("PING",)], soon(), shared=shared))
                except MemoryStoreBackendError as exc:
                    heard.append(exc.outcome)
            await transport.close()
            await client.aclose()
            return heard

    return asyncio.run(main())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["ours", "borrowed"])
def test_a_stream_of_replies_that_is_out_of_step_is_not_believed(kind: str, *, shared: bool) -> None:
    assert out_of_step(kind, shared=shared) == [[b"1"], "unknown", [b"3"], [b"4"]]
