"""Events: each of the table happens on a real backend, with the fields that the table names, and without secrets."""

from __future__ import annotations

import logging
import re
import runpy
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest
from botocore.exceptions import ClientError

import everturn
from everturn import (
    ChatMessage,
    CorruptEntry,
    EffectInDoubt,
    KeyReused,
    LeaseLost,
    MemoryStoreBackendError,
    VersionConflict,
)
from everturn import events as known
from everturn.errors import HostileSetting
from everturn.testing.faults.files import Locks
from everturn.testing.servers import postgres_server, valkey_cluster, valkey_sentinel, valkey_server
from tests.integration.dynamodb.scripted_server import answer, error, scripted
from tests.store.places import Servers
from tests.tiers import deep

SAID = "the words of the customer"
PASSWORD = "the-password-of-the-server"
MADE: set[str] = set()
F = TypeVar("F", bound=Callable[..., None])


def makes(*events: known.StoreEvent) -> Callable[[F], F]:
    """Note that a test makes these events happen."""

    def note(test: F) -> F:
        MADE.update(event.name for event in events)
        return test

    return note


class Told(logging.Handler):
    """The records of everturn's loggers."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, event: known.StoreEvent) -> list[Any]:
        return [record for record in self.records if record.event == event.name]

    def names(self) -> list[str]:
        return [record.event for record in self.records]


STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "taskName"}


@pytest.fixture
def told() -> Iterator[Told]:
    """All that is told during a test. Whatever it is, it has the fields of the table, and no secrets."""
    handler, logger = Told(), logging.getLogger("everturn")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)
    table = {event.name: event for event in known.EVENTS}
    for record in handler.records:
        fields = record.__dict__.keys() - STANDARD - {"event", "backend"}
        assert fields == set(table[record.event].fields), record.event
        assert record.levelno == table[record.event].level
        text = f"{record.getMessage()} {[record.__dict__[field] for field in fields]}"
        assert SAID not in text
        assert PASSWORD not in text
        assert "\n" not in record.getMessage()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db"


TURN = [ChatMessage("user", SAID)]


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_event_of_the_table_is_made_by_a_test_here() -> None:
    assert {event.name for event in known.EVENTS} == MADE


@pytest.mark.parametrize("name", ["events", "telemetry"])
def test_the_tables_in_the_docs_are_those_of_the_code(name: str) -> None:
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "make_event_tables.py"))
    page = (tool["DOCS"] / f"{name}.md").read_text("utf-8")
    assert tool["TABLES"][name]() in page, "run python tools/make_event_tables.py"


def test_no_constant_of_the_module_is_missing_in_the_table() -> None:
    assert {value for value in vars(known).values() if isinstance(value, known.StoreEvent)} == set(known.EVENTS)


def test_without_logging_set_up_nothing_is_printed(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", TURN, key="k")
        with pytest.raises(KeyReused):
            store.add_messages("a", [ChatMessage("user", "other")], key="k")
    assert capfd.readouterr() == ("", "")


# --- a SQLite file ---------------------------------------------------------------------------------------------------


@makes(known.OPENED, known.CLOSED)
def test_opening_tells_the_settings_that_are_in_force(url: str, told: Told) -> None:
    everturn.open(f"{url}?ttl=60", synchronous="NORMAL").close()
    opened, closed = told.records
    assert (opened.event, opened.name, opened.place) == ("opened", "everturn.sqlite", url)
    assert "ttl=60.0" in opened.options
    assert "synchronous=NORMAL" in opened.options
    assert closed.event == "closed"


@makes(known.MIGRATED)
def test_a_migration_is_told(tmp_path: Path, told: Told) -> None:
    shutil.copy(Path(__file__).parents[1] / "migrations" / "v1.db", tmp_path / "old.db")
    everturn.open(f"sqlite:///{tmp_path}/old.db").close()
    (migrated,) = told.of(known.MIGRATED)
    assert migrated.found == 1
    assert migrated.now > 1


@makes(known.REPLAYED)
def test_a_replay_is_told(url: str, told: Told) -> None:
    with everturn.open(url) as store:
        for _ in range(2):
            store.add_messages("a", TURN, key="k")
            store.save_snapshot("a", key="s")
    (turn, snapshot) = told.of(known.REPLAYED)
    assert (turn.operation, turn.session_id, turn.version) == ("add_messages", "a", 1)
    assert snapshot.operation == "save_snapshot"


@makes(known.CONFLICT, known.KEY_REUSED)
def test_conflicts_are_told_once(url: str, told: Told) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", TURN, key="k")
        with pytest.raises(VersionConflict):
            store.save_context("a", "x", "y", expected_version=7)
        with pytest.raises(KeyReused):
            store.add_messages("a", [ChatMessage("user", "other")], key="k")
    (conflict,) = told.of(known.CONFLICT)
    assert (conflict.operation, conflict.expected, conflict.actual) == ("save_context", 7, 1)
    (reused,) = told.of(known.KEY_REUSED)
    assert reused.version == 1


@makes(known.CORRUPT_ENTRY, known.PROBLEMS_FOUND)
def test_damage_is_told_by_reads_by_skipping_reads_and_by_verify(url: str, tmp_path: Path, told: Told) -> None:
    with everturn.open(url, page_checksums=False) as store:
        store.add_messages("a", TURN)
        store.add_messages("a", TURN)
    path = tmp_path / "memory.db"
    path.write_bytes(path.read_bytes().replace(SAID.encode(), SAID.upper().encode(), 1))
    with everturn.open(url) as store:
        with pytest.raises(CorruptEntry):
            store.get_history("a")
        store.get_history("a", on_corrupt="skip")
        assert not store.verify().ok
    loud, skipped = told.of(known.CORRUPT_ENTRY)
    assert (loud.operation, loud.session_id, loud.seq) == ("get_history", "a", skipped.seq)
    assert "skipped" in skipped.reason
    assert told.of(known.PROBLEMS_FOUND)


@makes(known.LOCK_WAIT, known.FAILED)
def test_a_long_wait_for_the_lock_is_told_before_the_call_fails(
    url: str, tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "LONG_WAIT", 0.05)
    with everturn.open(url, timeout=0.5) as store:
        with Locks([tmp_path / "memory.db"]), pytest.raises(MemoryStoreBackendError):
            store.add_messages("a", TURN)
        assert [record.event for record in told.records[1:]] == ["lock_wait", "failed"]
        (failed,) = told.of(known.FAILED)
        assert (failed.operation, failed.session_id, failed.outcome) == ("add_messages", "a", "not_written")


@makes(known.ERASED, known.UPKEEP_FAILED)
def test_an_erasure_is_told_and_a_checkpoint_that_a_reader_stops(url: str, tmp_path: Path, told: Told) -> None:
    with everturn.open(url, timeout=2) as store:
        store.add_messages("a", TURN)
        reader = apsw.Connection(str(tmp_path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT * FROM sqlite_schema").fetchall()
        receipt = store.erase("a")
        reader.close()
    assert not receipt.complete
    assert [(record.step, record.backend) for record in told.of(known.UPKEEP_FAILED)] == [("checkpoint", "sqlite")]
    assert [(record.session_id, record.entries, record.complete) for record in told.of(known.ERASED)] == [
        ("a", 1, False)
    ]


def test_a_step_of_reaping_that_fails_is_told_and_the_change_is_kept(
    url: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everturn.backends.sqlite import backend

    def fail(*_: object) -> None:
        raise MemoryStoreBackendError("the disk is full", outcome="not_written")

    monkeypatch.setattr(backend, "REAP_EVERY", 1)
    monkeypatch.setattr(backend.maintenance, "reap", fail)
    with everturn.open(url) as store:
        store._operations.backend._until_reaping = 1  # type: ignore[attr-defined]  # SQLite's
        store.add_messages("a", TURN)
        assert len(store.get_history("a")) == 1
    assert [(record.step, record.reason) for record in told.of(known.UPKEEP_FAILED)] == [
        ("reap", "the disk is full [not_written]")
    ]


@makes(known.LEASE_LOST, known.EFFECT_IN_DOUBT)
def test_a_lost_lease_and_an_effect_in_doubt_are_told(url: str, told: Told) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", TURN)
        lease = store.lease("a", seconds=30)
        lease.release()
        with pytest.raises(LeaseLost):
            store.add_messages("a", TURN, lease=lease)
        store.begin_effect("a", "refund")
        with pytest.raises(EffectInDoubt):
            store.once("a", "refund", lambda: None)
    (lost,) = told.of(known.LEASE_LOST)
    assert (lost.operation, lost.session_id, lost.token) == ("add_messages", "a", lease.token)
    (doubt,) = told.of(known.EFFECT_IN_DOUBT)
    assert (doubt.operation, doubt.session_id, doubt.attempt) == ("once", "a", 1)


def test_a_session_id_cannot_forge_a_line(url: str, told: Told) -> None:
    with everturn.open(url) as store:
        store.erase("a\nERROR:everturn.sqlite:failed")
    assert told.of(known.ERASED)  # and `told` looks for line breaks


def test_a_handler_that_raises_ends_no_call(url: str) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError(record)

    broken, logger = Broken(), logging.getLogger("everturn.sqlite")
    logger.addFilter(broken)
    logger.setLevel(logging.DEBUG)
    try:
        with everturn.open(url) as store:
            assert not store.add_messages("a", TURN, key="k").replayed
            assert store.add_messages("a", TURN, key="k").replayed
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeFilter(broken)


# --- servers ---------------------------------------------------------------------------------------------------------


@makes(known.CONNECTION_LOST, known.RETRIED, known.RECOVERED, known.RECONNECTED)
@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_server_that_is_killed_and_comes_back_is_told_in_order(kind: str, told: Told) -> None:
    starting: Any = valkey_server(appendonly=True, requirepass=PASSWORD) if kind == "redis" else postgres_server()
    with starting as server, everturn.open(server.url, timeout=20) as store:
        store.add_messages("a", TURN)
        server.kill()
        threading.Timer(0.3, server.restart).start()
        store.add_messages("a", TURN)
        assert len(store.get_history("a")) == 2
    order = [name for name in dict.fromkeys(told.names()) if name != "hostile_setting"]
    assert order == ["opened", "connection_lost", "retried", "reconnected", "recovered", "closed"]
    assert {record.name for record in told.records} == {f"everturn.{kind}"}
    (recovered,) = told.of(known.RECOVERED)
    assert recovered.operation == "add_messages"
    assert recovered.attempts > 0
    assert len(told.of(known.RECONNECTED)) == 1


@makes(known.HOSTILE_SETTING)
def test_a_setting_that_can_lose_turns_is_told_as_well_as_warned_of(told: Told) -> None:
    with valkey_server(appendonly=False) as server, pytest.warns(HostileSetting):
        everturn.open(server.url).close()
    assert told.of(known.HOSTILE_SETTING)


@makes(known.POOL_WAIT)
@pytest.mark.parametrize("kind", ["valkey", "postgres"])
def test_a_long_wait_for_a_connection_is_told(
    kind: str, servers: Servers, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "LONG_WAIT", 0.05)
    one = {"max_connections": 1} if kind == "valkey" else {"pool_size": 1}
    with everturn.open(getattr(servers, kind).url, timeout=20, warnings=False, **one) as store:
        backend: Any = store._operations.backend
        pool: Any
        if kind == "valkey":
            store.get_history("pool-wait")
            (node,) = backend.sender.transport._nodes.values()
            pool = node._pool
        else:
            pool = backend._executor._source._connections
        place = pool.take(0)
        threading.Timer(0.2, pool.give_back, [place]).start()
        store.get_history("pool-wait")
    assert told.of(known.POOL_WAIT)


@makes(known.THROTTLED)
def test_throttling_is_told_and_is_no_lost_connection(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "everturn")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    form = answer(200, {"Item": {"pk": {"S": "everturn"}, "sk": {"S": "form"}, "version": {"N": "1"}}})
    nothing = answer(200, {})
    # Opening reads the form. A change reads the head and writes. After it was refused it reads the head, makes sure
    # that none was lost by a look for its name, and writes.
    script = (form, nothing, error("ThrottlingException"), nothing, nothing, nothing)
    with (
        scripted(*script) as server,
        everturn.open(f"dynamodb://everturn?region=us-east-1&endpoint=http://{server.address}", timeout=20) as store,
    ):
        store.add_messages("a", TURN)
        assert len(server.requests) == len(script)
    (throttled,) = told.of(known.THROTTLED)
    assert (throttled.session_id, throttled.place) == ("a", "dynamodb://everturn")
    assert "no capacity" in throttled.reason
    assert not told.of(known.CONNECTION_LOST)


@makes(known.FAILED_OVER)
@pytest.mark.parametrize("kind", ["sentinel", deep("cluster")])
def test_a_failover_names_the_old_master_and_the_new_one(kind: str, told: Told) -> None:
    starting: Any = (
        valkey_sentinel(replicas=1, appendonly=True)
        if kind == "sentinel"
        else valkey_cluster(replicas=1, appendonly=True)
    )
    with starting as watched, everturn.open(watched.url, timeout=60) as store:
        store.add_messages("a", TURN)
        key = store._operations.backend._names.keys("a")[0].decode()  # type: ignore[attr-defined]  # Redis's
        gone = watched.kill_master() if kind == "sentinel" else watched.kill_master_of(key)
        store.add_messages("a", TURN)
    failed_over = told.of(known.FAILED_OVER)[0]
    assert str(gone.port) in failed_over.old
    assert re.fullmatch(r"[^:]+:\d+", failed_over.new)
    assert str(gone.port) not in failed_over.new


# --- DynamoDB --------------------------------------------------------------------------------------------------------


@makes(known.THROTTLED)
def test_a_change_that_dynamodb_has_no_capacity_for_is_told_once(servers: Servers, told: Told) -> None:
    with everturn.open(servers.dynamodb.url_of("everturn-events")) as store:
        store.add_messages("a", TURN)
        driver = store._operations.backend.client._driver
        real, left = driver.transact_write_items, [1, 2, 3]

        def throttled(**parameters: Any) -> Any:
            if not left:
                return real(**parameters)
            left.pop()
            answer = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(answer, "TransactWriteItems")

        driver.transact_write_items = throttled
        store.add_messages("a", TURN)
    assert [record.event for record in told.records].count("throttled") == 1
