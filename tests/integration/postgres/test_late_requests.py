"""Requests that a network keeps, or that wait for a lock: applied in time and in order, or not at all.

(docs/decisions/020-late-requests.md.)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStore, MemoryStoreBackendError
from everturn.backends._shared.server_clock import ServerClock
from everturn.backends.postgres import timed_connections
from everturn.testing.servers import PostgresServer, wait_until
from tests.integration.postgres.holding import HoldingProxy
from tests.integration.writers import turn
from tests.store.speech import gives_up_after

pytestmark = pytest.mark.one_schema

FACES = ["blocking", "awaited"]
Call = Callable[..., Any]


class Sender:
    """A store behind the proxy, blocking or awaited, that makes one call in a thread of its own."""

    def __init__(self, face: str, url: str, call: Call, timeout: float) -> None:
        self.answer: Any = None
        self._run = self._awaited if face == "awaited" else self._blocking
        self._opened = threading.Event()
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, call, timeout), daemon=True)
        self._thread.start()
        assert self._opened.wait(30)

    def _blocking(self, url: str, call: Call, timeout: float) -> None:
        with everturn.open(url, timeout=30) as store:
            call(store, "another")  # its statement is prepared then: what is kept is the request itself
            self._opened.set()
            self._go.wait()
            with gives_up_after(timeout, store):
                self.answer = _outcome(lambda: call(store))

    def _awaited(self, url: str, call: Call, timeout: float) -> None:
        async def main() -> None:
            async with await everturn.open_async(url, timeout=30) as store:
                await call(store, "another")
                self._opened.set()
                self._go.wait()
                with gives_up_after(timeout, store):
                    (self.answer,) = await asyncio.gather(call(store), return_exceptions=True)

        asyncio.run(main())

    def go(self) -> None:
        self._go.set()

    def wait(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.answer


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as exc:  # noqa: BLE001 - for the test to look at
        return exc


def texts(store: MemoryStore) -> list[str | None]:
    return [message.content for message in store.get_history("a")][::2]


CALLS: dict[str, Call] = {
    "append": lambda store, name="a": store.add_messages(name, turn("late")),
    "keyed": lambda store, name="a": store.add_messages(name, turn("late"), key="K"),
    "replace": lambda store, name="a": store.replace(name, turn("late"), after=2 if name == "a" else 0),
}
MATCHING = b'"content":"late"'  # of each of them, in its parameters


@contextmanager
def kept(
    face: str, server: PostgresServer, schema: str, call: str, *, then_cut: bool, timeout: float = 30
) -> Iterator[tuple[HoldingProxy, Sender, MemoryStore]]:
    """A session of one turn, and a first attempt of a call that the network keeps; and a store beside it."""
    with (
        everturn.open(f"{server.url}?schema={schema}", timeout=20) as beside,
        HoldingProxy(server.url) as proxy,
    ):
        beside.add_messages("a", turn("first"))
        sender = Sender(face, f"{proxy.url}?schema={schema}&sslmode=disable", CALLS[call], timeout)
        proxy.hold(MATCHING, then_cut=then_cut)
        sender.go()
        assert proxy.holds.wait(30)
        yield proxy, sender, beside


TAKEN_BACK: dict[str, Callable[[MemoryStore, Any], object]] = {
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "replace": lambda store, _: store.replace("a", [], after=2),
    "erase": lambda store, _: store.erase("a"),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", list(TAKEN_BACK))
@pytest.mark.parametrize("call", list(CALLS))
def test_an_attempt_that_its_retry_overtook_stays_undone_behind_what_took_it_back(
    face: str, how: str, call: str, server: PostgresServer, schema: str
) -> None:
    """The store's own retry lands and is acknowledged; somebody takes it back; then the first attempt arrives."""
    with kept(face, server, schema, call, then_cut=True) as (proxy, sender, beside):
        receipt = sender.wait()
        assert not isinstance(receipt, Exception)
        assert texts(beside)[-1] == "late"
        if how == "rollback":
            beside.undo("a") if call == "replace" else beside.replace("a", [], after=2)
            snapshot = beside.save_snapshot("a")
            beside.add_messages("a", turn("and more"))
            TAKEN_BACK[how](beside, snapshot)
        else:
            TAKEN_BACK[how](beside, None)
        before = texts(beside)
        proxy.release()
        assert texts(beside) == before
        assert "late" not in before


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", list(TAKEN_BACK))
def test_a_keyed_attempt_stays_undone_when_the_caller_wrote_it_again_and_took_that_back(
    face: str, how: str, server: PostgresServer, schema: str
) -> None:
    """The first attempt is kept, and its worker dies; another writes the turn with the same key."""
    with kept(face, server, schema, "keyed", then_cut=False) as (proxy, sender, beside):
        snapshot = beside.save_snapshot("a")
        assert not beside.add_messages("a", turn("late"), key="K").replayed
        TAKEN_BACK[how](beside, snapshot)
        before = texts(beside)
        proxy.refuse_and_cut()
        proxy.release()
        assert texts(beside) == before == ([] if how == "erase" else ["first"])
        assert not beside.add_messages("a", turn("late"), key="K").replayed, "the key is free again"
        del sender  # it finds no server until its time is up; its thread is nobody's


@pytest.mark.parametrize("face", FACES)
def test_an_attempt_that_its_retry_overtook_is_found_and_not_doubled(
    face: str, server: PostgresServer, schema: str
) -> None:
    with kept(face, server, schema, "append", then_cut=True) as (proxy, sender, beside):
        assert sender.wait().version == 2
        proxy.release()
        assert (texts(beside), beside.info("a").version) == (["first", "late"], 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("call", list(CALLS))
def test_an_attempt_that_arrives_after_its_callers_time_is_not_applied(
    face: str, call: str, server: PostgresServer, schema: str
) -> None:
    with kept(face, server, schema, call, then_cut=False, timeout=0.5) as (proxy, sender, beside):
        error = sender.wait()
        assert isinstance(error, MemoryStoreBackendError)
        assert error.outcome == "unknown"
        proxy.release()
        assert texts(beside) == ["first"]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("call", list(CALLS))
def test_an_attempt_that_waited_for_a_lock_beyond_its_callers_time_is_not_applied(
    face: str, call: str, server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing else ends its wait: its caller is dead, and can cancel nothing."""
    monkeypatch.setattr("everturn.backends.postgres.backend.lock_timeout", lambda _: 60_000)
    monkeypatch.setattr(timed_connections, "abandon", lambda pgconn: pgconn.finish())
    url = f"{server.url}?schema={schema}"
    with (
        everturn.open(url, timeout=20) as beside,
        psycopg.connect(server.url) as holder,
        psycopg.connect(server.url, autocommit=True) as watcher,
    ):
        beside.add_messages("a", turn("first"))
        sender = Sender(face, f"{url}&options=-c%20statement_timeout%3D60000", CALLS[call], 0.5)
        holder.execute(f"SELECT * FROM {schema}.sessions FOR UPDATE")
        sender.go()
        wait_until(lambda: waits_for_lock(watcher), "it waits for the lock")
        assert isinstance(sender.wait(), MemoryStoreBackendError)
        assert waits_for_lock(watcher), "the server works on for a caller that has gone"
        holder.rollback()
        wait_until(lambda: not works(watcher), "the server has done with it")
        assert texts(beside) == ["first"]


def waits_for_lock(watcher: psycopg.Connection[Any]) -> bool:
    return works(watcher, "AND wait_event_type = 'Lock'")


def works(watcher: psycopg.Connection[Any], and_: str = "") -> bool:
    ask = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn' AND state = 'active' {and_}"
    return bool(watcher.execute(ask).fetchone()[0])  # type: ignore[index]


# --- what is left behind ---------------------------------------------------------------------------------------------


def test_an_erasure_leaves_a_tombstone_without_text_that_is_reaped(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    with everturn.open(url) as store:
        store.add_messages("the name of a customer", turn("1"))
        store.erase("the name of a customer")
        select = f"SELECT row_to_json(t)::text FROM {schema}.tombstones t"
        ((stone,),) = beside.execute(select).fetchall()
        assert "customer" not in stone
        assert store.sessions().sessions == ()
        store.compact()
        assert beside.execute(select).fetchall(), "it is needed for as long as requests live"
        beside.execute(f"UPDATE {schema}.tombstones SET until = until - 61")
        store.compact()
        assert beside.execute(select).fetchall() == []


def set_clock(beside: psycopg.Connection[Any], schema: str, seconds: int) -> None:
    """Set the server's clock forward, or back."""
    beside.execute(
        f"""CREATE OR REPLACE FUNCTION {schema}.now_v1(given double precision) RETURNS double precision
            LANGUAGE sql VOLATILE
            RETURN coalesce(given, extract(epoch FROM clock_timestamp())::double precision + {seconds})"""
    )


@pytest.mark.parametrize("face", FACES)
def test_a_clock_that_is_set_back_costs_an_attempt_and_no_change(
    face: str, url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    """What was issued ahead of the server's clock was issued before the clock was set back: nobody knows its place."""
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
    sender = Sender(face, url, lambda store, name="a": store.add_messages(name, turn("2")), 20)
    set_clock(beside, schema, -3600)
    sender.go()
    assert sender.wait().version == 2
    with everturn.open(url) as store:
        store.replace("a", [], after=2)
        store.add_messages("a", turn("3"))
        assert texts(store) == ["1", "3"]


@pytest.mark.parametrize("face", FACES)
def test_a_clock_that_is_set_forward_costs_an_attempt_and_no_change(
    face: str, url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    everturn.open(url).close()
    sender = Sender(face, url, lambda store, name="a": store.add_messages(name, turn("1")), 20)
    set_clock(beside, schema, 3600)
    sender.go()
    assert sender.wait().version == 1


def test_whoever_saw_a_rollback_writes_behind_it_at_once(url: str) -> None:
    """The reply tells the server's time: the next request is issued behind the fence, and needs no second attempt."""
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))
        snapshot = store.save_snapshot("a")
        store.add_messages("a", turn("2"))
        attempts = []
        port: Any = store._operations.backend._executor  # type: ignore[attr-defined]
        run = port.run

        async def counted(call: Any, deadline: float) -> Any:
            attempts.append(call.statement)
            return await run(call, deadline)

        port.run = counted
        for _ in range(20):
            store.rollback_to_snapshot("a", snapshot)
            store.undo("a")
            store.add_messages("a", turn("3"))
        assert len(attempts) == 60


# --- trim ------------------------------------------------------------------------------------------------------------


def test_a_trim_that_is_planned_again_is_done(url: str) -> None:
    """Its first attempt is lost, somebody edits, its retry is refused: the new plan is not taken for the old."""
    with everturn.open(url) as store, everturn.open(url) as other:
        for number in range(6):
            store.add_messages("a", turn(str(number)))
        backend: Any = store._operations.backend  # type: ignore[attr-defined]
        change, lost = backend.change, []

        async def lossy(request: Any, deadline: float) -> Any:
            if not lost:
                lost.append(request)
                other.replace("a", turn("edited"), after=8)
                raise MemoryStoreBackendError("the request was lost", outcome="unknown", transient=True)
            return await change(request, deadline)

        backend.change = lossy
        store.trim("a", max_messages=4)
        assert len(store.get_history("a")) == 4


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_outlives_1024_changes_and_compact_while_its_turn_can_be_reached(
    url: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    with everturn.open(url, timeout=30) as store:
        first = store.add_messages("a", turn("1"), key="K")
        snapshot = store.save_snapshot("a")
        gone = store.add_messages("a", turn("2"), key="L")
        store.rollback_to_snapshot("a", snapshot)
        for number in range(12):  # undo steps, of which ten are kept
            store.replace("a", turn(str(number)), after=2)
        later = "version = version + 1100, forgotten = version + 1100, seal = NULL"
        beside.execute(f"UPDATE {schema}.sessions SET {later}")
        store.add_messages("a", turn("3"))
        store.compact("a")
        again = store.add_messages("a", turn("1"), key="K")
        assert (again.replayed, again.version) == (True, first.version)
        remembered = beside.execute(f"SELECT version FROM {schema}.changes WHERE key IS NOT NULL").fetchall()
        assert remembered == [(first.version,)], "a key whose turn is reclaimed is forgotten"
        assert gone.version not in [change.version for change in store.changes("a", limit=5000)]


# --- copies ----------------------------------------------------------------------------------------------------------


@contextmanager
def issued(moment: float) -> Iterator[None]:
    """What is sent meanwhile was issued at a moment in the past, and kept by the network since."""
    window = ServerClock.window
    ServerClock.window = lambda clock, _, deadline: window(clock, moment, deadline)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ServerClock.window = window  # type: ignore[method-assign]


@pytest.mark.parametrize("entries", [1, 1500], ids=["in one request", "staged"])
def test_a_copy_that_was_issued_before_an_erasure_brings_nothing_back(
    url: str, schema: str, beside: psycopg.Connection[Any], tmp_path: Path, entries: int
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    with everturn.open(source) as store:
        store.add_messages("a", [ChatMessage("user", "SECRET")] * entries)
    with everturn.open(url) as store:
        moment = time.monotonic()
        store.erase("a")
        with issued(moment), pytest.raises(MemoryStoreBackendError, match="too late"):
            everturn.copy(source, f"{url}&timeout=3")  # enough for a busy machine
        assert beside.execute(f"SELECT count(*) FROM {schema}.entries").fetchone() == (0,)
        everturn.copy(source, url)
        assert len(store.get_history("a")) == entries
