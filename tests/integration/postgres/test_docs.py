"""What docs/storage-postgres.md tells people to paste works when it is pasted."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import everturn
from everturn.testing.servers import PostgresServer
from tests.integration.writers import turn

PAGE = Path(__file__).parents[3] / "docs" / "storage-postgres.md"
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(language: str) -> list[str]:
    found = [code for tag, code in SNIPPET.findall(PAGE.read_text("utf-8")) if tag == language]
    assert found
    return found


@pytest.fixture
def fresh(server: PostgresServer, beside: psycopg.Connection[Any]) -> Any:
    beside.execute("SET client_min_messages = error")
    beside.execute("DROP SCHEMA IF EXISTS everturn CASCADE")
    with everturn.open(server.url) as store:
        store.add_messages("customer-42", turn("hi"))
        yield store


@pytest.mark.usefixtures("fresh")
def test_the_queries_find_something(beside: psycopg.Connection[Any]) -> None:
    for statement in filter(str.strip, snippets("pgsql")[0].split(";\n")):
        assert beside.execute(statement).fetchall(), statement  # type: ignore[arg-type]  # it comes from a page


def test_the_python_runs(server: PostgresServer) -> None:
    (code,) = snippets("py")
    address = server.url.removesuffix("/postgres")
    code = code.replace("postgresql://user@host/db", f"{address}/postgres").replace("verify-full", "disable")
    with ConnectionPool(server.url, min_size=1, kwargs={"autocommit": True}) as pool, ExitStack() as stack:

        def opened(url: str, **options: Any) -> Any:
            return stack.enter_context(everturn.open(url, **options))

        exec(compile(code, str(PAGE), "exec"), {"everturn": Names(opened, everturn.from_client), "pool": pool})


class Names(NamedTuple):
    """The module, but its stores are closed when the test ends."""

    open: Any
    from_client: Any


def test_partitioned_tables_serve(fresh: Any, server: PostgresServer, beside: psycopg.Connection[Any]) -> None:
    fresh.close()
    beside.execute("TRUNCATE everturn.sessions, everturn.names, everturn.entries, everturn.changes, everturn.jumps")
    script = snippets("pgsql")[1]
    for table in ("entries", "changes", "jumps"):
        beside.execute(script.replace("entries", table))  # type: ignore[arg-type]
    with everturn.open(server.url) as store:
        for number in range(20):
            name = f"s{number}"
            store.add_messages(name, turn("1"), key="k")
            snapshot = store.save_snapshot(name)
            store.add_messages(name, turn("2"))
            store.rollback_to_snapshot(name, snapshot)
            store.add_messages(name, turn("3"))
            assert store.add_messages(name, turn("1"), key="k").replayed
            assert [message.content for message in store.get_history(name)][::2] == ["1", "3"]
            store.fork(name, f"f{number}")
        store.compact()
        assert store.verify().ok
        assert store.erase("s1").entries
    counts = [beside.execute(f"SELECT count(*) FROM everturn.entries_{n}").fetchone()[0] for n in (0, 1)]  # type: ignore[index]
    assert all(counts)
