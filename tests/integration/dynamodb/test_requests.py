"""Requests that each operation sends, and the limits of DynamoDB: hidden where that can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError, Record, SchemaTooNew, Unsupported
from everturn.backends.dynamodb import new_state
from everturn.backends.dynamodb.create_table import FORM_KEY
from everturn.testing.servers import ServerError, dynamodb_server

Opened = Callable[..., Any]


def counted(store: Any, call: Callable[[], Any]) -> dict[str, int]:
    """The requests that a call sends, by operation."""
    client = store._operations.backend.client
    client.sent = {}
    try:
        call()
        return dict(client.sent)
    finally:
        client.sent = None


def say(store: Any, session_id: str, *texts: str, **options: Any) -> Any:
    return store.add_messages(session_id, [ChatMessage("user", text) for text in texts], **options)


def test_a_lone_writer_appends_with_one_request(opened: Opened) -> None:
    store = opened()
    assert counted(store, lambda: say(store, "a", "x")) == {"get_item": 1, "transact_write_items": 1}
    assert counted(store, lambda: say(store, "a", "y")) == {"transact_write_items": 1}
    assert counted(store, lambda: say(store, "a", "z", key="k")) == {"transact_write_items": 1}


def test_the_latest_messages_come_with_one_request(opened: Opened) -> None:
    store = opened()
    for number in range(40):
        say(store, "a", f"{number}", "ok")
    assert counted(store, lambda: store.get_history("a", limit=20)) == {"query": 1}
    assert counted(store, lambda: store.get_context("a", max_messages=20)) == {"query": 2}  # and how it begins
    assert counted(store, lambda: store.get_context("a", max_messages=80)) == {"query": 1}


def test_a_stale_plan_is_made_again_on_the_head_that_the_refusal_brought(opened: Opened) -> None:
    store, other = opened(), opened()
    say(store, "a", "mine")
    say(other, "a", "theirs")
    assert counted(store, lambda: say(store, "a", "mine again")) == {"transact_write_items": 2}
    assert [message.content for message in store.get_history("a")] == ["mine", "theirs", "mine again"]


def test_snapshot_and_rollback_do_not_grow_with_the_history(opened: Opened) -> None:
    store = opened()
    say(store, "a", "x")
    short = store.save_snapshot("a")
    say(store, "a", "y")
    few = counted(store, lambda: store.rollback_to_snapshot("a", short))
    say(store, "b", *(f"{number}" for number in range(3000)))
    long = store.save_snapshot("b")
    say(store, "b", *(f"{number}" for number in range(3000)))
    assert (
        counted(store, lambda: store.rollback_to_snapshot("b", long))
        == few
        == {"get_item": 1, "transact_write_items": 1}
    )
    assert len(store.get_history("b")) == 3000


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [300_000, 16 * 2**20 - 100], ids=["over-a-block", "16-MiB"])
def test_a_body_over_the_limit_of_an_item_is_chunked(opened: Opened, size: int) -> None:
    store = opened(timeout=60)
    say(store, "a", "before", "é" * (size // 2), "after")
    found = store.get_history("a")
    assert [len(message.content) for message in found] == [6, size // 2, 5]
    assert store.verify("a").ok
    assert [message.content for message in store.get_history("a", limit=1)] == ["after"]
    erased = store.erase("a")
    assert (erased.entries, erased.complete) == (3, True)


@pytest.mark.parametrize(("count", "size"), [(150, 40_000), (25_000, 1)], ids=["more-bytes", "more-entries"])
def test_a_turn_over_the_limit_of_a_transaction_is_staged(opened: Opened, count: int, size: int) -> None:
    store = opened(timeout=60)
    say(store, "a", "first")
    receipt = say(store, "a", *("x" * size for _ in range(count)))
    assert len(receipt.seqs) == count
    assert len(store.get_history("a")) == count + 1
    assert [len(message.content) for message in store.get_history("a", limit=3)] == [size] * 3
    assert store.info("a").bytes == sum(len(f'{{"role":"user","content":"{"x" * size}"}}') for _ in range(count)) + len(
        '{"role":"user","content":"first"}'
    )
    assert store.verify().ok
    assert notes(store) == []


def test_a_turn_that_was_staged_and_lost_to_another_is_not_staged_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those who wait for 16 MiB to be sent once more pass the turn over, and it loses again."""
    monkeypatch.setattr(new_state, "TRANSACTION_BYTES", 1000)
    store, faster = opened(timeout=30), opened(timeout=30)
    say(store, "a", "first")
    client = store._operations.backend.client
    send, left = client.send, [2]

    async def watched(operation: str, *args: Any, **options: Any) -> Any:
        if operation == "transact_write_items" and left[0]:
            left[0] -= 1
            say(faster, "a", "faster")
        return await send(operation, *args, **options)

    client.send = watched
    told = counted(store, lambda: say(store, "a", "x" * 5000, "y" * 5000))
    assert told["batch_write_item"] == 2  # the note, and the bodies
    assert [len(message.content) for message in store.get_history("a")] == [5, 6, 6, 5000, 5000]
    assert notes(store) == []
    assert store.verify().ok


@pytest.mark.parametrize(("count", "size"), [(1000, 200), (5000, 700)], ids=["one-item", "staged"])
def test_records_whose_kinds_are_long_fit_into_items(opened: Opened, count: int, size: int) -> None:
    store = opened(timeout=60)
    body = {"x": "y" * size}
    store.append("a", [Record(f"{number % 7}" + "\U0001f600" * 63, body) for number in range(count)])
    assert len(store.state("a").entries) == count
    assert store.verify("a").ok


def test_a_head_that_is_too_large_for_an_item_is_refused_in_words(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undo steps and the present state each name the system messages that a trim keeps."""
    monkeypatch.setattr(new_state, "HEAD_BYTES", 2000)
    store = opened(timeout=30)
    for number in range(60):
        store.add_messages("a", [ChatMessage("system", f"{number}"), ChatMessage("user", f"{number}")])
    shown = [store.get_history("a")]

    def trim_on() -> None:
        for number in range(59, 1, -1):
            store.trim("a", max_messages=60 + number)
            shown.append(store.get_history("a"))

    with pytest.raises(MemoryStoreBackendError, match="drop_undo") as caught:
        trim_on()
    assert caught.value.outcome == "not_written"
    assert store.get_history("a") == shown[-1]
    say(store, "a", "goes on")
    store.compact("a", drop_undo=True)
    store.trim("a", max_messages=1, keep_system=False)
    assert store.verify("a").ok


def test_a_copy_that_adds_more_than_a_transaction_holds(opened: Opened, tmp_path: Path) -> None:
    """The results of effects, here: each is an item of its own."""
    store = opened(timeout=60)
    with everturn.open(f"sqlite:///{tmp_path}/source.db") as source:
        say(source, "a", "first")
        everturn.copy(source, store)
        for number in range(12):
            source.begin_effect("a", f"{number}", "x" * 370_000)
        everturn.copy(source, store)
        assert store.get_effects("a") == source.get_effects("a")
        assert store.info("a").version == source.info("a").version
    assert store.verify("a").ok


def notes(store: Any) -> list[str]:
    """The notes of logs that are to be removed, or were staged."""
    backend = store._operations.backend
    found = backend.client._driver.query(
        TableName=backend.client.table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "cleanup/"}},
    )
    return [item["sk"]["S"] for item in found["Items"]]


def test_a_turn_that_was_staged_and_never_published_is_not_seen_and_is_reclaimed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker dies between the two."""
    monkeypatch.setattr(new_state, "TRANSACTION_BYTES", 1000)
    store = opened(timeout=5)
    say(store, "a", "first")
    backend = store._operations.backend
    write = backend.table.write_together

    async def dies(*_: Any) -> None:
        raise MemoryStoreBackendError("the worker died", outcome="not_written")

    backend.table.write_together = dies
    with pytest.raises(MemoryStoreBackendError):
        say(store, "a", "x" * 5000, "y" * 5000)
    backend.table.write_together = write
    assert [message.content for message in store.get_history("a")] == ["first"]
    assert len(notes(store)) == 1
    store.compact()
    assert len(notes(store)) == 1  # it may yet be published
    now = backend._now()
    backend._clock = lambda: now + 700
    store.compact()
    assert notes(store) == []
    assert store.verify().ok
    say(store, "a", "x" * 5000)
    assert len(store.get_history("a")) == 2


# --- the table -------------------------------------------------------------------------------------------------------


def test_a_table_that_is_not_there_is_not_made_unless_that_is_wanted(opened: Opened, url: str) -> None:
    with pytest.raises(MemoryStoreBackendError, match=r"no such table.*create=true"):
        opened(url.replace("&create=true", ""))
    opened(url)
    opened(url.replace("&create=true", ""))


def test_the_table_has_the_attribute_by_which_traces_are_purged(opened: Opened) -> None:
    client = opened()._operations.backend.client
    told = client._driver.describe_time_to_live(TableName=client.table)["TimeToLiveDescription"]
    assert told == {"TimeToLiveStatus": "ENABLED", "AttributeName": "purge_at"}


def test_a_table_of_a_newer_everturn_is_refused(opened: Opened, url: str) -> None:
    client = opened()._operations.backend.client
    client._driver.put_item(TableName=client.table, Item={**FORM_KEY, "version": {"N": "2"}})
    with pytest.raises(SchemaTooNew):
        opened(url)


def test_a_store_that_is_read_only_sends_no_write(opened: Opened, url: str) -> None:
    say(opened(), "a", "x")
    reader = opened(url, read_only=True)
    assert len(reader.get_history("a")) == 1
    with pytest.raises(Unsupported, match="read-only"):
        say(reader, "a", "y")


@pytest.mark.parametrize("kind", ["dynoxide", "ministack"])
def test_both_stand_ins_do(kind: Any) -> None:
    """`make test` runs on one of them: the other must do as well."""
    try:
        running = dynamodb_server(kind)
        with running as server, everturn.open(server.url) as store:
            for number in range(3):
                say(store, "a", f"{number}")
            store.rollback("a", 1)
            assert [message.content for message in store.get_history("a")] == ["0"]
            assert store.verify().ok
    except ServerError as exc:
        if kind == "ministack":
            raise
        pytest.skip(str(exc))
