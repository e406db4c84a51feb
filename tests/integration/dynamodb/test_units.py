"""Request units of each operation, computed from the items that are sent and read: a bill is made of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn.backends.dynamodb import client

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
SHORT, LONG = "x" * 200, "x" * 2000


def size_of(item: dict[str, Any]) -> int:
    """Compute the size of an item as DynamoDB does: names and values."""
    total = 0
    for name, value in item.items():
        ((kind, held),) = value.items()
        total += len(name) + (len(held.encode()) if kind == "S" else len(held) if kind == "B" else len(held) // 2 + 2)
    return total


def _written(part: dict[str, Any]) -> dict[str, Any]:
    """The item that a part of a transaction writes. Of a head that is changed, the attributes that it has then."""
    if "UpdateExpression" not in part:
        item: dict[str, Any] = part.get("Item") or part["Key"]
        return item
    values = part["ExpressionAttributeValues"]
    return {**part["Key"], "tag": values[":new"], "session": values[":session"]}


class Bill:
    """Requests and units since it was begun."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.requests = self.written = self.read = 0

    def note_request(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests += 1
        if model.name == "TransactWriteItems":
            for write in params["TransactItems"]:
                ((_, part),) = write.items()
                self.written += 2 * ceil(size_of(_written(part)) / 1024)

    def note_answer(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "Query":
            self.read += max(1, ceil(sum(map(size_of, parsed["Items"])) / 4096))
        elif model.name == "GetItem":
            self.read += max(1, ceil(size_of(parsed.get("Item", {})) / 4096))
        elif model.name == "TransactGetItems":
            self.read += sum(2 * max(1, ceil(size_of(found.get("Item", {})) / 4096)) for found in parsed["Responses"])

    def line(self) -> str:
        return f"{self.requests} | {self.written} | {self.read} |"


@pytest.fixture
def bill(monkeypatch: pytest.MonkeyPatch) -> Bill:
    bill, make = Bill(), client.driver_of

    def driver_of(address: client.TableAddress, **credentials: str) -> Any:
        driver = make(address, **credentials)
        driver.meta.events.register("provide-client-params.dynamodb", bill.note_request)
        driver.meta.events.register("after-call.dynamodb", bill.note_answer)
        return driver

    monkeypatch.setattr(client, "driver_of", driver_of)
    return bill


@pytest.fixture
def store(url: str, bill: Bill) -> Iterator[everturn.MemoryStore]:
    """A store with a session of 100 messages, which it wrote itself."""
    with everturn.open(url, timeout=20) as store:
        for _ in range(50):
            store.save_context("a", SHORT, SHORT)
        yield store


def rollback(store: everturn.MemoryStore) -> None:
    store.rollback("b", 1)


def effect(store: everturn.MemoryStore) -> None:
    store.begin_effect("b", "pay")
    store.finish_effect("b", "pay")


def lease(store: everturn.MemoryStore) -> None:
    with store.lease("b"):
        pass


# Session `a` has 100 messages and is only read; session `b` is small, and changed.
OPERATIONS: dict[str, Callable[[everturn.MemoryStore], Any]] = {
    "append a turn": lambda store: store.save_context("b", SHORT, SHORT),
    "append a turn, with a key": lambda store: store.save_context("b", SHORT, SHORT, key="k"),
    "append the first turn of a session": lambda store: store.save_context("c", SHORT, SHORT),
    "append a turn of two messages of 2,000 characters": lambda store: store.save_context("b", LONG, LONG),
    "read the latest 20 messages, of 100 or of 900": lambda store: store.get_history("a", limit=20),
    "a prompt of 20 messages (`get_context`)": lambda store: store.get_context("a", max_messages=20),
    "read all of 100 messages": lambda store: store.get_history("a"),
    "a snapshot": lambda store: store.save_snapshot("b"),
    "a rollback to a version": rollback,
    "begin and finish an effect": effect,
    "take and release a lease": lease,
}


def test_the_units_of_each_operation_are_those_of_the_docs(store: everturn.MemoryStore, bill: Bill) -> None:
    page = PAGE.read_text("utf-8").partition("## Units of DynamoDB")[2].partition("\n## ")[0]
    rows = [row for row in page.partition("\n\nWriters")[0].splitlines() if row.startswith("| ")][1:]
    store.save_context("b", SHORT, SHORT)
    counted = []
    for name, operation in OPERATIONS.items():
        bill.begin()
        operation(store)
        counted.append(f"| {name} | {bill.line()}")
    assert counted == rows


def test_a_read_of_the_latest_costs_the_same_at_any_length(store: everturn.MemoryStore, bill: Bill) -> None:
    bill.begin()
    store.get_history("a", limit=20)
    short = bill.line()
    for _ in range(100):
        store.save_context("a", SHORT, SHORT)
    bill.begin()
    store.get_history("a", limit=20)
    assert bill.line() == short


def test_a_prompt_costs_the_same_however_many_summaries_there_are(store: everturn.MemoryStore, bill: Bill) -> None:
    """Each fold leaves one. The latest is enough."""

    def prompt() -> str:
        for _ in range(2):
            for _ in range(20):
                store.save_context("a", SHORT, SHORT)
            store.fold("a", lambda *_: "so far", max_messages=20)
        for _ in range(20):
            store.save_context("a", SHORT, SHORT)
        bill.begin()
        assert store.get_context("a", max_messages=20).summaries[0].text == "so far"
        return bill.line()

    few = prompt()
    store.append("a", [everturn.Summary(f"{number}", [1.0], (1, 1)) for number in range(200)])
    assert prompt() == few
