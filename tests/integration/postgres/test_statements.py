"""What goes to the server, seen in its log: one statement an operation, which calls one function of a version."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everturn
from everturn import Summary
from everturn.backends.postgres import statements
from everturn.testing.servers import PostgresServer, postgres_server
from tests.integration.writers import turn

STATEMENT = re.compile(r"^everturn\|.*?LOG:  (?:statement|execute [^:]*): (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def talkative() -> Iterator[PostgresServer]:
    with postgres_server(log_statement="all", log_line_prefix="%a|") as server:
        yield server


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, _: store.add_messages("a", turn("x")),
    "append with a key": lambda store, _: store.add_messages("a", turn("x"), key="k"),
    "append others": lambda store, _: store.append("a", [Summary("s", [1.0], (1, 2)), *turn("x")]),
    "replace": lambda store, _: store.replace("a", turn("z"), after=1),
    "undo": lambda store, _: store.undo("a"),
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "clear": lambda store, _: store.clear("a"),
    "snapshot": lambda store, _: store.save_snapshot("a"),
    "delete snapshot": lambda store, snapshot: store.delete_snapshot("a", snapshot),
    "set ttl": lambda store, _: store.set_ttl("a", 1000),
    "fork": lambda store, _: store.fork("a", "b"),
    "history": lambda store, _: store.get_history("a"),
    "context": lambda store, _: store.get_context("folded", max_messages=20),
    "state": lambda store, _: store.state("a"),
    "info": lambda store, _: store.info("a"),
    "changes": lambda store, _: store.changes("a"),
    "sessions": lambda store, _: store.sessions(),
    "find": lambda store, _: store.find("x"),
    "summaries": lambda store, _: store.search_summaries("a", [1.0]),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_an_operation_is_one_statement_that_calls_one_function(talkative: PostgresServer, call: str) -> None:
    schema = re.sub(r"\W", "_", call)
    with everturn.open(talkative.url, schema=schema, timeout=20) as store:
        store.append("a", [*turn("1"), Summary("s", [1.0], (1, 2))])
        snapshot = store.save_snapshot("a")
        store.add_messages("a", turn("2"))
        store.clear("a")
        if call == "context":
            for number in range(100):
                store.add_messages("folded", turn(str(number)))
            store.fold("folded", lambda *_: "so far", max_messages=60)
        said = len(talkative.log)
        CALLS[call](store, snapshot)
        (sent,) = STATEMENT.findall(talkative.log[said:])
    assert re.fullmatch(rf'SELECT .*"{schema}"\.\w+_v\d+\(.*', sent)


def test_tasks_that_wait_together_share_a_statement(talkative: PostgresServer) -> None:
    async def main() -> list[str]:
        async with await everturn.open_async(talkative.url, schema="together", timeout=20) as store:
            await store.add_messages("a", turn("0"))
            said = len(talkative.log)
            await asyncio.gather(*(store.add_messages(f"s{number}", turn("x")) for number in range(50)))
            return STATEMENT.findall(talkative.log[said:])

    assert len(asyncio.run(main())) <= 2


def test_every_function_that_is_called_has_a_version_in_its_name() -> None:
    calls = statements.load("calls.sql", "everturn")
    assert calls
    for statement in calls.values():
        names = re.findall(r'"everturn"\.(\w+)\(', statement)
        assert names
        assert all(re.search(r"_v\d+$", name) for name in names)
