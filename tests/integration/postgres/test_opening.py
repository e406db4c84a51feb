"""Opening: ten workers at once, schemas, refusals, and clients that are given to us."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import everturn
from everturn import InvalidInput, MemoryStoreBackendError, SchemaTooNew, Unsupported
from everturn.backends.postgres.executor import BlockingExecutor
from everturn.backends.postgres.schema import CURRENT
from everturn.testing.servers import PostgresServer
from tests.integration.writers import turn


def start_ten_at_once(url: str) -> None:
    """Ten workers open a store and write a turn, all of which are there."""
    gate = threading.Barrier(10)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            gate.wait()
            with everturn.open(url, timeout=20) as store:
                store.add_messages("a", turn(str(number)))
        except Exception as exc:  # noqa: BLE001 - whatever it is, the test tells
            failures.append(exc)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    with everturn.open(url) as store:
        assert len(store.get_history("a")) == 20


def test_ten_workers_that_start_at_once_make_one_schema(url: str) -> None:
    start_ten_at_once(url)


def test_a_schema_that_another_worker_makes_meanwhile_is_not_a_strangers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for everturn's tables and the look for anybody's."""
    run = BlockingExecutor.run

    async def and_meanwhile(port: BlockingExecutor, call: Any, deadline: float) -> Any:
        if "pg_tables" in call.statement:
            monkeypatch.setattr(BlockingExecutor, "run", run)
            everturn.open(url).close()
        return await run(port, call, deadline)

    monkeypatch.setattr(BlockingExecutor, "run", and_meanwhile)
    with everturn.open(url) as store:
        assert BlockingExecutor.run is run
        assert store.add_messages("a", turn("1")).version == 1


def test_schemas_share_nothing(server: PostgresServer) -> None:
    with everturn.open(server.url, schema="one") as one, everturn.open(f"{server.url}?schema=two") as two:
        one.add_messages("a", turn("1"))
        assert two.get_history("a") == []
        assert two.sessions().sessions == ()


def test_namespaces_share_nothing(url: str) -> None:
    with everturn.open(url, namespace="x") as one, everturn.open(url, namespace="y") as two, everturn.open(url) as none:
        one.add_messages("a", turn("1"))
        assert (two.get_history("a"), none.get_history("a")) == ([], [])
        assert (two.find("1"), none.find("1")) == ([], [])


@pytest.mark.parametrize("schema", ["", "A", "a b", 'a"b', "a;drop", "pg_x", "x" * 64, "1a", None])
def test_a_schema_that_needs_quoting_is_refused(server: PostgresServer, schema: Any) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        everturn.open(server.url, schema=schema)


def test_a_schema_of_another_program_is_refused_untouched(
    server: PostgresServer, schema: str, beside: psycopg.Connection[Any]
) -> None:
    beside.execute(f"CREATE SCHEMA {schema} CREATE TABLE sessions (x int)")
    with pytest.raises(InvalidInput, match="not everturn's"):
        everturn.open(server.url, schema=schema)
    found = beside.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    assert found == [("sessions",)]


def test_an_empty_schema_is_filled(server: PostgresServer, schema: str, beside: psycopg.Connection[Any]) -> None:
    beside.execute(f"CREATE SCHEMA {schema}")
    with everturn.open(server.url, schema=schema) as store:
        store.add_messages("a", turn("1"))


def test_a_newer_schema_is_refused(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    everturn.open(url).close()
    beside.execute(f"INSERT INTO {schema}.schema_versions (version, everturn) VALUES ({CURRENT + 1}, 'later')")
    with pytest.raises(SchemaTooNew) as caught:
        everturn.open(url)
    assert (caught.value.found, caught.value.supported) == (CURRENT + 1, CURRENT)


def test_an_emptied_table_of_versions_is_a_clear_error(url: str, schema: str, beside: psycopg.Connection[Any]) -> None:
    everturn.open(url).close()
    beside.execute(f"DELETE FROM {schema}.schema_versions")
    with pytest.raises(InvalidInput, match="schema_versions"):
        everturn.open(url)


def test_options_of_libpq_pass_and_unknown_ones_do_not(server: PostgresServer) -> None:
    everturn.open(server.url, application_name="me", sslmode="disable").close()
    with pytest.raises(InvalidInput, match="nonsense"):
        everturn.open(server.url, nonsense=1)
    with pytest.raises(InvalidInput, match="pool_size"):
        everturn.open(server.url, pool_size=0)


def test_of_several_hosts_the_one_that_answers_is_found(server: PostgresServer, schema: str) -> None:
    host, _, port = server.address.partition(":")
    with socket.create_server((host, 0)) as silent:
        hosts, ports = f"{host},{host}", f"{silent.getsockname()[1]},{port}"
        with everturn.open(
            "postgresql://postgres@/postgres", host=hosts, port=ports, schema=schema, timeout=10
        ) as store:
            store.add_messages("a", turn("1"))


def test_a_wrong_name_fails_at_once_and_says_so(server: PostgresServer) -> None:
    began = time.monotonic()
    with pytest.raises(MemoryStoreBackendError, match="does not exist") as caught:
        everturn.open(server.url.removesuffix("postgres") + "nowhere", timeout=20)
    assert (caught.value.outcome, caught.value.transient) == ("not_written", False)
    assert time.monotonic() - began < 10


def test_a_password_is_in_no_error(server: PostgresServer) -> None:
    url = server.url.removesuffix("postgres").replace("postgres@", "postgres:geheim@") + "nowhere"
    with pytest.raises(MemoryStoreBackendError) as caught:
        everturn.open(url)
    assert "geheim" not in str(caught.value)


def test_a_database_that_cannot_hold_every_text_is_refused(
    server: PostgresServer, beside: psycopg.Connection[Any]
) -> None:
    beside.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(Unsupported, match="LATIN1"):
        everturn.open(server.url.removesuffix("postgres") + "latin")


# --- clients that are given to us ------------------------------------------------------------------------------------


def test_a_given_pool_serves_and_stays_open(server: PostgresServer, schema: str) -> None:
    with ConnectionPool(server.url, min_size=1, max_size=3, kwargs={"autocommit": True}) as pool:
        with everturn.from_client(pool, schema=schema) as store:
            store.add_messages("a", turn("1\0é"))
            assert len(store.get_history("a")) == 2
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(MemoryStoreBackendError, match="closed"):
            store.get_history("a")


def test_a_given_connection_serves_and_stays_open(server: PostgresServer, schema: str) -> None:
    from psycopg.rows import dict_row

    with psycopg.connect(
        server.url, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
    ) as connection:
        with everturn.from_client(connection, schema=schema) as store:
            store.add_messages("a", turn("1"))
            assert len(store.get_history("a")) == 2
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_given_asynchronous_clients_serve(server: PostgresServer, schema: str) -> None:
    async def main() -> None:
        async with AsyncConnectionPool(server.url, open=False, kwargs={"autocommit": True}) as pool:
            store = everturn.from_client(pool, schema=schema)
            await asyncio.gather(*(store.add_messages(f"s{n}", turn("1")) for n in range(20)))
            await store.close()
            async with pool.connection() as connection:
                other = everturn.from_client(connection, schema=schema)
                assert len(await other.get_history("s7")) == 2

    asyncio.run(main())


def test_a_connection_that_is_not_autocommit_is_refused(server: PostgresServer, schema: str) -> None:
    with psycopg.connect(server.url) as connection, pytest.raises(InvalidInput, match="autocommit"):
        everturn.from_client(connection, schema=schema)
    with (
        ConnectionPool(server.url, min_size=1, max_size=1) as pool,
        pytest.raises(InvalidInput, match="kwargs="),
    ):
        everturn.from_client(pool, schema=schema)


def test_a_connection_with_a_transaction_open_is_refused(server: PostgresServer, schema: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("BEGIN")
        with pytest.raises(InvalidInput, match="idle"):
            everturn.from_client(connection, schema=schema)
        connection.execute("ROLLBACK")
        everturn.from_client(connection, schema=schema).add_messages("a", turn("1"))


def test_options_of_a_client_are_set_on_the_client(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection, pytest.raises(InvalidInput, match="pool_size"):
        everturn.from_client(connection, pool_size=3)


def test_an_exhausted_given_pool_is_not_written(server: PostgresServer, schema: str) -> None:
    with ConnectionPool(server.url, min_size=1, max_size=1, kwargs={"autocommit": True}) as pool:
        store = everturn.from_client(pool, schema=schema, timeout=0.3)
        with pool.connection(), pytest.raises(MemoryStoreBackendError, match="no connection was free") as caught:
            store.add_messages("a", turn("1"))
        assert caught.value.outcome == "not_written"


# --- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_store_crosses_a_fork(url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", turn("before"))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.add_messages("a", turn("child"))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        store.add_messages("a", turn("parent"))
        assert [message.content for message in store.get_history("a")][::2] == ["before", "child", "parent"]
