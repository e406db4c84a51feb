"""Callers whose time is up, whose task is cancelled, or whom a signal ends: the server is told, and nobody waits."""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backends.postgres import connections, timed_connections
from everturn.testing.servers import PostgresServer, postgres_server, wait_until
from tests.integration.children import children, eventually_async, run
from tests.integration.writers import turn
from tests.tiers import first

pytestmark = pytest.mark.one_schema

FACES = ["blocking", "awaited"]


def in_time(face: str, url: str, timeout: float, call: Callable[[Any], Any]) -> BaseException | None:
    """The error that a call ends in, on a store that was opened with more time than the call has."""
    if face == "blocking":
        with everturn.open(url, timeout=timeout) as store:
            try:
                call(store)
            except MemoryStoreBackendError as exc:
                return exc
            return None

    async def main() -> Any:
        async with await everturn.open_async(url, timeout=timeout) as store:
            return (await asyncio.gather(call(store), return_exceptions=True))[0]

    outcome = asyncio.run(main())
    return outcome if isinstance(outcome, BaseException) else None


def works(watcher: psycopg.Connection[Any]) -> bool:
    ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn' AND state = 'active'"
    return bool(watcher.execute(ask).fetchone()[0])  # type: ignore[index]


@pytest.fixture
def barred(server: PostgresServer, url: str, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that keeps everybody from reading entries, as a migration would."""
    with everturn.open(url, timeout=20) as store:
        store.add_messages("a", turn("1"))
    with psycopg.connect(server.url) as connection:
        connection.execute(f"LOCK TABLE {schema}.entries IN ACCESS EXCLUSIVE MODE")
        yield connection


READS: dict[str, Callable[[Any], Any]] = {
    "history": lambda store: store.get_history("a"),
    "find": lambda store: store.find("1"),
    "verify": lambda store: store.verify("a"),
    "append": lambda store: store.add_messages("a", turn("2")),
    "erase": lambda store: store.erase("a"),
}


@pytest.mark.usefixtures("barred")
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("read", list(READS))
def test_a_statement_is_cancelled_when_its_callers_time_is_up(
    face: str, read: str, url: str, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else ends it: the limits that the server keeps to by itself are far."""
    monkeypatch.setattr("everturn.backends.postgres.backend.lock_timeout", lambda _: 60_000)
    own = f"{url}&options=-c%20statement_timeout%3D60000"
    assert isinstance(in_time(face, own, 0.5, READS[read]), MemoryStoreBackendError)
    wait_until(lambda: not works(beside), "the server has ended what nobody waits for")


@pytest.mark.usefixtures("barred")
@pytest.mark.parametrize("face", FACES)
def test_a_statement_of_a_client_that_died_ends_by_itself(
    face: str, url: str, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is killed cancels nothing.
    monkeypatch.setattr(timed_connections, "abandon", lambda pgconn: pgconn.finish())
    assert isinstance(in_time(face, url, 0.8, READS["history"]), MemoryStoreBackendError)
    wait_until(lambda: not works(beside), "the server has ended what nobody waits for")


SETTINGS = ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout")


def settings(connection: Any) -> list[str]:
    return [connection.execute(f"SHOW {name}").fetchone()[0] for name in SETTINGS]


def test_a_client_that_we_were_given_keeps_its_settings(server: PostgresServer, schema: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        before = settings(connection)
        store = everturn.from_client(connection, schema=schema, timeout=20)
        store.add_messages("a", turn("1"))
        store.get_history("a")
        store.erase("a")
        assert settings(connection) == before


@contextmanager
def lent(store: Any, seconds: float) -> Iterator[Any]:
    """A connection of the store's, for a call that has so much time."""
    lender = store._operations.backend._executor._source
    connection = lender.take(time.monotonic() + seconds)
    yield connection
    lender.give_back(connection)


def test_our_own_connections_have_a_limit_unless_the_user_set_one(url: str) -> None:
    with everturn.open(url, timeout=20) as store, lent(store, 5) as connection:
        statement, transaction, lock = settings(connection)
        assert 20 < float(statement.removesuffix("ms")) / 1000 < 23
        assert (transaction, lock) == (statement, "0")
    with everturn.open(f"{url}&options=-c%20statement_timeout%3D1234", timeout=20) as store, lent(store, 50) as other:
        assert settings(other)[0] == "1234ms"


def test_a_limit_grows_with_the_time_that_a_call_has(url: str) -> None:
    with everturn.open(url, timeout=20) as store, lent(store, 100) as connection:
        assert 100 < float(settings(connection)[0].removesuffix("ms")) / 1000 < 120


# --- the end of an event loop ----------------------------------------------------------------------------------------


def test_an_event_loop_that_ends_waits_for_the_server_and_not_for_the_time_out(url: str) -> None:
    """Whoever ends a loop cancels every task, also those that see to the changes of others."""
    ends: list[BaseException | Any] = []

    async def change(store: Any, number: int) -> None:
        try:
            ends.append(await store.add_messages(f"s{number % 7}", turn(str(number)), key=str(number)))
        except BaseException as exc:
            ends.append(exc)
            raise

    async def main() -> Any:
        store = await everturn.open_async(url, timeout=30)
        for name in range(7):
            await store.add_messages(f"s{name}", turn("before"))
        tasks = [asyncio.create_task(change(store, number)) for number in range(40)]
        tasks.append(asyncio.create_task(store.fork("s1", "copy")))
        batcher: Any = store._operations.backend._batcher  # type: ignore[attr-defined]
        for _ in range(100):  # steps of the loop: an answer is some steps away from what it answers
            if batcher._small._begun > 7:
                break
            await asyncio.sleep(0)
        assert batcher._small._begun > 7
        assert not any(task.done() for task in tasks)
        return store._operations.backend._executor._source  # type: ignore[attr-defined]

    began = time.monotonic()
    pool = asyncio.run(main())
    for connection in pool._idle:
        connection.pgconn.finish()
    assert time.monotonic() - began < 15, "it waited for the time-out"
    assert len(ends) == 40
    with everturn.open(url) as store:
        there = [message.content for name in range(7) for message in store.get_history(f"s{name}")]
        assert there[::2] == there[1::2]
        before = len(there)
        for number in range(40):
            store.add_messages(f"s{number % 7}", turn(str(number)), key=str(number))
        there = [message.content for name in range(7) for message in store.get_history(f"s{name}")]
        assert len(there) == 2 * (40 + 7) >= before
        assert store.verify().ok


def wait_for_locks(watcher: psycopg.Connection[Any]) -> int:
    ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn' AND wait_event_type = 'Lock'"
    return int(watcher.execute(ask).fetchone()[0])  # type: ignore[index]


@pytest.mark.parametrize("many", [1, 20])  # as many as need more connections than there are
def test_an_event_loop_that_ends_does_not_wait_for_somebody_elses_lock(
    url: str, server: PostgresServer, schema: str, beside: psycopg.Connection[Any], many: int
) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", turn("1"))

    async def main() -> Any:
        store = await everturn.open_async(url, timeout=30)
        tasks.extend(asyncio.create_task(store.add_messages("a", turn("2"))) for _ in range(many))
        await eventually_async(lambda: wait_for_locks(beside) >= min(many, 10), "all connections wait for the lock")
        return store._operations.backend._executor._source  # type: ignore[attr-defined]

    tasks: list[asyncio.Task[Any]] = []
    with psycopg.connect(server.url) as other:
        other.execute(f"SELECT 1 FROM {schema}.sessions FOR UPDATE")
        began = time.monotonic()
        pool = asyncio.run(main())
        assert time.monotonic() - began < 15, "it waited for the time-out"
        assert all(task.cancelled() for task in tasks)
        wait_until(lambda: not works(beside), "the server has ended what nobody waits for")
    for connection in pool._idle:
        connection.pgconn.finish()
    with everturn.open(url) as store:
        assert len(store.get_history("a")) == len(turn("1"))


# --- many bytes ------------------------------------------------------------------------------------------------------


def test_a_statement_of_many_changes_has_a_bounded_number_of_bytes(url: str) -> None:
    sizes: list[tuple[int, int]] = []

    async def main() -> None:
        async with await everturn.open_async(url, timeout=50) as store:
            batcher: Any = store._operations.backend._batcher  # type: ignore[attr-defined]
            for queue in (batcher._small, batcher._large):
                new_call = queue._new_call

                def counted(changes: Any, *rest: Any, new_call: Any = new_call) -> Any:
                    bodies = [len(draft.body) for change in changes for draft in change.action.drafts]
                    sizes.append((len(changes), sum(bodies)))
                    return new_call(changes, *rest)

                queue._new_call = counted
            large = [store.add_messages(f"l{n}", [ChatMessage("user", "x" * 2**21)]) for n in range(12)]
            middling = [store.add_messages(f"m{n}", [ChatMessage("user", "x" * 2**17)]) for n in range(64)]
            small = [store.add_messages(f"s{n}", turn("x")) for n in range(64)]
            receipts = await asyncio.gather(*large, *middling, *small)
            assert {receipt.version for receipt in receipts} == {1}

    asyncio.run(main())
    assert sum(count for count, _ in sizes) == 140
    assert max(size for count, size in sizes if count > 1) <= 4 * 2**20
    assert max(count for count, _ in sizes) > 1


def append_large_and_small(url: str, many: str, size: str) -> None:
    """In a process of its own: append so many large turns and as many small ones at once. Tells the memory it took."""

    async def main() -> None:
        async with await everturn.open_async(url, timeout=150) as store:
            await store.add_messages("warm", turn("x"))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            text = "x" * (int(size) - 1000)
            numbers = range(int(many))
            large = [asyncio.create_task(store.add_messages(f"l{n}", [ChatMessage("user", text)])) for n in numbers]
            small = [asyncio.create_task(store.add_messages(f"s{n}", turn("x"))) for n in numbers]
            receipts = await asyncio.gather(*large, *small)
            assert [receipt.version for receipt in receipts] == [1] * len(receipts)
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)

    asyncio.run(main())


@pytest.mark.parametrize(("many", "size"), first(1, [(24, 2**21), (70, 2**24)]))
def test_many_large_turns_land_with_their_small_neighbours_in_little_more_memory_than_they_have(
    url: str, many: int, size: int
) -> None:
    """70 turns of 16 MiB made one statement, which failed, and the small ones in it too."""
    taken = int(run(append_large_and_small, url, many, size))
    assert taken < many * size + 12 * size + 2**26


@pytest.mark.parametrize("face", FACES)
def test_a_turn_that_no_statement_can_hold_is_refused_at_once(
    face: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL holds no value of a gigabyte; libpq took 13 of them to find out."""
    monkeypatch.setattr("everturn.backends.postgres.backend.MOST_BYTES", 1000, raising=False)
    large = [ChatMessage("user", "x" * 400) for _ in range(3)]
    error = in_time(face, url, 20, lambda store: store.add_messages("a", large))
    assert isinstance(error, MemoryStoreBackendError)
    assert (error.outcome, error.transient) == ("not_written", False)
    assert "append several turns" in str(error)


# --- signals ---------------------------------------------------------------------------------------------------------


class SoftTimeLimit(Exception):
    """Raised by a handler, as Celery does."""


RAISED: dict[str, BaseException] = {
    "soft limit": SoftTimeLimit("by a handler"),
    "time-out": TimeoutError("by a handler"),
    "time-out with a number": TimeoutError(errno.ETIME, "by a handler"),
    "interrupt": KeyboardInterrupt("by a handler"),
}


def signalled(url: str, raised: str) -> None:
    """Calls on a server that says nothing, each of which a signal ends."""

    def handler(*_: object) -> None:
        raise RAISED[raised]

    def fresh() -> None:
        everturn.open(url, timeout=30)

    signal.signal(signal.SIGALRM, handler)
    with everturn.open(url, timeout=30, pool_size=3) as store:
        store.add_messages("a", turn("1"))
        print("ready", flush=True)
        sys.stdin.readline()
        calls: list[Callable[[], Any]] = [
            lambda: store.add_messages("a", turn("2"), key="2"),
            lambda: store.get_history("a"),
            lambda: store.clear("a"),
            lambda: store.erase("a"),
            fresh,
        ]
        for number, call in enumerate(calls):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                call()
            except BaseException as exc:  # noqa: BLE001 - whatever a handler raises
                caught: BaseException | None = exc
            else:
                caught = None
            assert caught is RAISED[raised], (number, caught)
        print("done", flush=True)
        sys.stdin.readline()
        assert store.add_messages("a", turn("3")).version >= 2
        assert store.get_history("a")


@pytest.mark.parametrize("raised", list(RAISED))
def test_what_a_signals_handler_raises_ends_the_call_and_is_raised(raised: str) -> None:
    with postgres_server() as server, children((signalled, server.url, raised)) as (child,):
        assert child.line() == "ready"
        server.pause()
        try:
            _tell(child)
            assert child.line() == "done", child.communicate()[1]
        finally:
            server.resume()
        child.finished("\n")


@pytest.mark.parametrize("step", [(connections.ServerLimits, "next"), (connections, "is_alive")])
def test_a_call_that_is_interrupted_before_it_began_keeps_no_connection(
    url: str, step: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with everturn.open(url, timeout=20, pool_size=1) as store:
        store.add_messages("a", turn("1"))
        with monkeypatch.context() as patched:
            patched.setattr(*step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.get_history("a")
        assert store.get_history("a")


def _tell(child: Any) -> None:
    child.stdin.write("\n")
    child.stdin.flush()


# --- no file descriptor left -----------------------------------------------------------------------------------------


def leave_no_descriptors() -> None:
    in_use = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def without_descriptors(url: str) -> None:
    """Calls of a process that may open no more files."""
    with everturn.open(url, timeout=2) as store:
        store.add_messages("a", turn("1"))
        held = store._operations.backend._executor._source.take(time.monotonic() + 5)  # type: ignore[attr-defined]
        leave_no_descriptors()
        calls: list[Callable[[], Any]] = [
            lambda: store.add_messages("a", turn("2")),
            lambda: store.get_history("a"),
            lambda: everturn.open(url, timeout=2),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(MemoryStoreBackendError) as caught:
                call()
            assert caught.value.outcome == "not_written", number
        held.close()


def awaited_without_descriptors(url: str) -> None:
    async def main() -> None:
        store = await everturn.open_async(url, timeout=2)
        await store.get_history("a")
        held = await store._operations.backend._executor._source.take(time.monotonic() + 5)  # type: ignore[attr-defined]
        leave_no_descriptors()
        calls: list[Callable[[], Any]] = [
            lambda: store.add_messages("a", turn("2")),
            lambda: store.get_history("a"),
            lambda: everturn.open_async(url, timeout=2),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(MemoryStoreBackendError) as caught:
                await call()
            assert caught.value.outcome == "not_written", number
        await held.close()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("story", [without_descriptors, awaited_without_descriptors])
def test_a_process_without_file_descriptors_hears_of_it_as_of_any_fault(url: str, story: Callable[[str], None]) -> None:
    run(story, url)


def test_threads_are_not_left_behind_by_a_cancellation(url: str, schema: str, server: PostgresServer) -> None:
    with everturn.open(url, timeout=20) as store:
        store.add_messages("a", turn("1"))
    with psycopg.connect(server.url) as holder:
        holder.execute(f"LOCK TABLE {schema}.entries IN ACCESS EXCLUSIVE MODE")
        in_time("blocking", url, 0.5, READS["history"])
        wait_until(
            lambda: not any(thread.name == "everturn-cancel" for thread in threading.enumerate()),
            "the thread has ended",
        )
