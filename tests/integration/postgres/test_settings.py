"""Hostile settings of a real server are said out loud when a store opens: by URL or over a client, of every kind."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

import everturn
from everturn import MemoryStoreBackendError
from everturn.backends._shared.server_warnings import HostileSetting
from everturn.testing.servers import PostgresServer, postgres_server
from tests.integration.writers import turn

OFF = "-c synchronous_commit=off"


def said_by(work: Callable[[], Any]) -> list[warnings.WarningMessage]:
    """Every warning, however often it is given."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        work()
    assert all(warning.category is HostileSetting for warning in said)
    return said


def blocking_url(url: str, schema: str) -> None:
    with everturn.open(url, schema=schema, options=OFF) as store:
        store.add_messages("a", turn("1"))


def awaited_url(url: str, schema: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(url, schema=schema, options=OFF) as store:
            await asyncio.gather(*(store.add_messages("a", turn(str(n))) for n in range(3)))

    asyncio.run(main())


def blocking_client(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True, options=OFF) as connection:
        everturn.from_client(connection, schema=schema).add_messages("a", turn("1"))


def awaited_client(url: str, schema: str) -> None:
    async def main() -> None:
        settings = {"autocommit": True, "options": OFF}
        async with AsyncConnectionPool(url, open=False, kwargs=settings) as pool:
            store = everturn.from_client(pool, schema=schema)

            async def write(number: int) -> None:
                await store.add_messages("a", turn(str(number)))

            await asyncio.gather(*map(write, range(3)))

    asyncio.run(main())


WAYS = {way.__name__: way for way in (blocking_url, awaited_url, blocking_client, awaited_client)}


@pytest.mark.parametrize("way", list(WAYS))
def test_it_is_said_once_a_store_whatever_way_it_is_opened(server: PostgresServer, schema: str, way: str) -> None:
    (said,) = said_by(lambda: WAYS[way](server.url, schema))
    assert "synchronous_commit=off: a crash of the server loses" in str(said.message)
    assert "To mend it: ALTER ROLE" in str(said.message)
    assert said.filename == __file__


def test_whoever_knows_can_have_silence(url: str) -> None:
    assert said_by(lambda: everturn.open(url, options=OFF, warnings="off").close()) == []


def test_a_sound_server_is_not_warned_of(url: str) -> None:
    assert said_by(lambda: everturn.open(url).close()) == []


def test_a_server_that_does_not_sync_is_warned_of() -> None:
    with postgres_server(fsync=False, full_page_writes=False) as server:
        fsync, pages = said_by(lambda: everturn.open(server.url).close())
        assert "fsync=off" in str(fsync.message)
        assert "full_page_writes=off" in str(pages.message)


def test_a_standby_that_commits_wait_for_and_is_not_there_is_warned_of() -> None:
    with postgres_server(synchronous_standby_names="elsewhere") as server:
        local = "-c synchronous_commit=local"  # else the migration would wait, too
        (said,) = said_by(lambda: everturn.open(server.url, options=local).close())
        assert "no such standby is connected: every change waits" in str(said.message)


def test_a_server_that_takes_no_changes_is_named_as_such(url: str) -> None:
    everturn.open(url).close()
    with pytest.warns(HostileSetting, match="every change will be refused"):
        store = everturn.open(url, options="-c default_transaction_read_only=on")
    with store, pytest.raises(MemoryStoreBackendError, match=r"read-only.*address the primary") as caught:
        store.add_messages("a", turn("1"))
    assert (caught.value.outcome, caught.value.transient) == ("not_written", False)


def test_a_role_that_sees_little_is_served_and_accuses_nobody(
    server: PostgresServer, schema: str, beside: psycopg.Connection[Any]
) -> None:
    beside.execute("CREATE ROLE little LOGIN")
    beside.execute(f"CREATE SCHEMA {schema} AUTHORIZATION little")
    url = server.url.replace("postgres@", "little@")
    assert said_by(lambda: everturn.open(url, schema=schema).close()) == []
