"""Faults of a real server, with writers under way: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import everturn
from everturn import MemoryStoreBackendError
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import PostgresServer, postgres_server, wait_until
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turn, turns, without_keys

pytestmark = pytest.mark.one_schema

SLACK = 1.5  # seconds that a busy machine may add to a time-out


def checked(ledger: Ledger, url: str) -> None:
    """What the writers were told is so, for a store that was opened after all that happened."""
    with everturn.open(url, timeout=20) as store:
        ledger.check(store)


# --- connections that end --------------------------------------------------------------------------------------------

TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE application_name = 'everturn' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 3
"""


@pytest.mark.parametrize("face", FACES)
def test_terminated_connections_are_nobodys_business(face: str, url: str, beside: psycopg.Connection[Any]) -> None:
    ledger = Ledger()
    with Writers(face, url, ledger, turns, every_kind, without_keys, count=6, timeout=20):
        for _ in range(40):
            ledger.progress(4)
            beside.execute(TERMINATE)
    assert ledger.errors == []
    checked(ledger, url)


@pytest.mark.parametrize("face", FACES)
def test_a_killed_server_loses_nothing_it_acknowledged(face: str) -> None:
    ledger = Ledger()
    with postgres_server() as server:
        with Writers(face, server.url, ledger, turns, every_kind, count=6, timeout=2):
            for _ in range(2):
                ledger.progress(40)
                server.kill()
                server.restart()
            ledger.progress(40)
        checked(ledger, server.url)


ENDS: dict[str, Callable[[PostgresServer], None]] = {"killed": PostgresServer.kill, "shut down": PostgresServer.stop}


@pytest.mark.parametrize("how", list(ENDS))
def test_a_server_that_is_back_within_the_time_out_goes_unnoticed(how: str) -> None:
    """Killed, or told to shut down, which it tells its clients (AdminShutdown)."""
    ledger = Ledger()
    with postgres_server() as server:
        with Writers("threads", server.url, ledger, turns, every_kind, without_keys, timeout=30):
            ledger.progress(20)
            ENDS[how](server)
            server.restart()
            ledger.progress(20)
        assert ledger.errors == []
        checked(ledger, server.url)


# --- a server that says nothing --------------------------------------------------------------------------------------


@pytest.fixture
def pausable() -> Iterator[PostgresServer]:
    """A server with everturn's schema: to make it takes longer than the time-outs here may."""
    with postgres_server() as server:
        everturn.open(server.url, timeout=20).close()
        yield server
        server.resume()


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_hangs_leaves_one_copy_of_everything(face: str, pausable: PostgresServer) -> None:
    """Longer than the time-out, with writers under way: an error that tells, then one copy of each."""
    ledger = Ledger()
    with Writers(face, pausable.url, ledger, turns, every_kind, count=6, timeout=0.8):
        ledger.hang(pausable.pause, pausable.resume, 12)
    wait_until(lambda: not lingering(pausable), "what was sent is carried out", 20)
    checked(ledger, pausable.url)


def lingering(server: PostgresServer) -> bool:
    """Whether the server still works on something that a store asked for."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everturn' AND state = 'active'"
        return bool(connection.execute(ask).fetchone()[0])  # type: ignore[index]


def test_every_call_on_a_paused_server_ends_in_time_with_a_doubt(pausable: PostgresServer) -> None:
    with everturn.open(pausable.url, timeout=1) as store:
        store.add_messages("a", turn("first"))
        pausable.pause()
        ways: list[Callable[[], Any]] = [
            lambda: store.add_messages("a", turn("k"), key="k"),
            lambda: store.get_history("a"),
            lambda: store.clear("a"),
            lambda: store.undo("a"),
            lambda: store.erase("a"),
            lambda: store.save_snapshot("a"),
            lambda: everturn.open(pausable.url, timeout=1),
        ]
        for number, way in enumerate(ways):
            began = time.monotonic()
            with pytest.raises(MemoryStoreBackendError, match=r"did not answer|could not be reached") as caught:
                way()
            assert time.monotonic() - began < 1 + SLACK
            assert number or caught.value.outcome == "unknown"  # the first had a connection, and was sent
        pausable.resume()
    with everturn.open(pausable.url, timeout=10) as store:
        for _ in range(3):
            store.add_messages("a", turn("k"), key="k")
        assert [message.content for message in store.get_history("a")] == ["first", "first", "k", "k"]


def test_tasks_on_a_paused_server_end_in_time_too(pausable: PostgresServer) -> None:
    async def main() -> None:
        async with await everturn.open_async(pausable.url, timeout=1) as store:
            await store.add_messages("a", turn("first"))
            pausable.pause()
            began = time.monotonic()
            changes = [store.add_messages(f"s{number}", turn("k"), key="k") for number in range(20)]
            outcomes = await asyncio.gather(*changes, return_exceptions=True)
            assert time.monotonic() - began < 1 + SLACK
            assert {getattr(outcome, "outcome", outcome) for outcome in outcomes} == {"unknown"}
            began = time.monotonic()
            others = [store.get_history("a"), store.info("a"), store.clear("a")]
            outcomes = await asyncio.gather(*others, return_exceptions=True)
            assert time.monotonic() - began < 1 + SLACK
            assert all(isinstance(outcome, MemoryStoreBackendError) for outcome in outcomes)
            pausable.resume()
        async with await everturn.open_async(pausable.url, timeout=10) as store:
            for number in range(20):
                await store.add_messages(f"s{number}", turn("k"), key="k")
                assert len(await store.get_history(f"s{number}")) == 2

    asyncio.run(main())


# --- replies that are lost -------------------------------------------------------------------------------------------


def after_undoable(store: Any) -> Any:
    store.add_messages("a", turn("1"))
    snapshot = store.save_snapshot("a")
    store.add_messages("a", turn("2"))
    return snapshot


CHANGES = {
    "append": lambda store, _, **key: store.add_messages("a", turn("3"), **key),
    "replace": lambda store, _, **key: store.replace("a", turn("3"), after=2, **key),
    "clear": lambda store, _, **key: store.clear("a", **key),
    "trim": lambda store, _, **key: store.trim("a", max_messages=2, **key),
    "rollback": lambda store, snapshot, **key: store.rollback_to_snapshot("a", snapshot, **key),
    "snapshot": lambda store, _, **key: store.save_snapshot("a", **key),
    "delete_snapshot": lambda store, snapshot, **key: store.delete_snapshot("a", snapshot, **key),
    "set_ttl": lambda store, _, **key: store.set_ttl("a", 1000, **key),
    "fork": lambda store, _, **key: store.fork("a", "b", **key),
    "undo": lambda store, _, **key: store.undo("a", **key),
}
# In the parameters of each: a statement that is prepared does not show its function when it is carried out.
MATCHING = {"append": b'"content":"3"', "set_ttl": b'"kind":"ttl"', "fork": b"fork_v1"}


def bytes_of(change: str) -> bytes:
    return MATCHING.get(change, b'"kind":"%s"' % change.encode())


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_change_whose_reply_is_lost_is_made_once(change: str, server: PostgresServer, schema: str) -> None:
    with (
        FaultProxy(server.url) as proxy,
        everturn.open(f"{proxy.url}?schema={schema}", timeout=20) as store,
        everturn.open(f"{server.url}?schema={schema}") as other,
    ):
        snapshot = after_undoable(store)
        if change == "undo":
            store.clear("a")
            store.clear("a")
            store.trim("a", max_messages=0)
            store.add_messages("a", turn("x"))
            store.trim("a", max_messages=1)
        before = other.state("a").version
        proxy.swallow_next_reply(matching=bytes_of(change), then="close")
        outcome = CHANGES[change](store, snapshot)
        assert proxy.swallowed == 1
        if change == "fork":
            assert (outcome.replayed, outcome.version, other.state("b").version) == (True, 1, 1)
            return
        assert change == "snapshot" or outcome.replayed
        assert outcome.version == before + 1 == other.state("a").version
        assert len(other.changes("a")) == before + 1
        assert other.verify().ok


@pytest.mark.parametrize("face", FACES)
def test_replies_swallowed_in_a_loop_double_nothing(face: str, server: PostgresServer, schema: str) -> None:
    """Of appends, undos, clears, rollbacks and the rest: whatever is under way."""
    ledger = Ledger()
    with (
        FaultProxy(server.url) as proxy,
        Writers(face, f"{proxy.url}?schema={schema}", ledger, turns, every_kind, without_keys, timeout=20),
    ):
        for number in range(20):
            proxy.swallow_next_reply(matching=(b'"role":', b'"kind":')[number % 2], then="close")
            wait_until(lambda number=number: proxy.swallowed > number, "a reply is swallowed")  # type: ignore[misc]
    assert ledger.errors == []
    checked(ledger, f"{server.url}?schema={schema}")


@pytest.mark.parametrize("change", ["append", "undo", "clear", "rollback"])
def test_a_retry_with_its_key_after_silence_finds_the_first(change: str, server: PostgresServer, schema: str) -> None:
    """Only the call that meets silence has a short time-out: a busy machine takes a second for the schema alone."""
    with (
        FaultProxy(server.url) as proxy,
        everturn.open(f"{server.url}?schema={schema}", timeout=20) as patient,
        everturn.open(f"{proxy.url}?schema={schema}", timeout=2) as store,
    ):
        snapshot = after_undoable(patient)
        if change == "undo":
            patient.clear("a")
        before = patient.state("a").version
        proxy.swallow_next_reply(matching=b'"kind":"%s"' % change.encode())
        with pytest.raises(MemoryStoreBackendError) as caught:
            CHANGES[change](store, snapshot, key="k")
        assert caught.value.outcome == "unknown"
        again = CHANGES[change](patient, snapshot, key="k")
        assert (again.replayed, again.version, patient.state("a").version) == (True, before + 1, before + 1)


def test_replies_lost_to_a_batch_of_tasks_double_nothing(server: PostgresServer, schema: str) -> None:
    async def main() -> None:
        with FaultProxy(server.url) as proxy:
            async with await everturn.open_async(f"{proxy.url}?schema={schema}", timeout=20) as store:
                for round_number in range(4):
                    proxy.swallow_next_reply(matching=b'"role":', then="close")
                    calls = (store.add_messages(f"s{n}", turn(str(round_number))) for n in range(30))
                    await asyncio.gather(*calls)
                for n in range(30):
                    assert [m.content for m in await store.get_history(f"s{n}")] == list("00112233")
            assert proxy.swallowed == 4

    asyncio.run(main())


def test_a_cut_network_is_retried_until_it_is_back(server: PostgresServer, schema: str) -> None:
    with FaultProxy(server.url) as proxy, everturn.open(f"{proxy.url}?schema={schema}", timeout=20) as store:
        store.add_messages("a", turn("1"))
        proxy.refuse()
        proxy.cut()
        back = threading.Timer(0.5, proxy.restore)
        back.start()
        assert store.add_messages("a", turn("2")).version == 2
        back.join()


def test_a_server_that_is_gone_is_not_written(server: PostgresServer, schema: str) -> None:
    everturn.open(f"{server.url}?schema={schema}", timeout=20).close()  # which makes the schema
    with FaultProxy(server.url) as proxy, everturn.open(f"{proxy.url}?schema={schema}", timeout=0.5) as store:
        store.add_messages("a", turn("1"))
        proxy.refuse()
        proxy.cut()
        time.sleep(0.05)  # the idle connection hears of it
        with pytest.raises(MemoryStoreBackendError, match="cannot be reached") as caught:
            store.add_messages("a", turn("2"))
        assert caught.value.outcome == "not_written"


def test_changes_that_fail_together_each_say_so_once(server: PostgresServer, schema: str) -> None:
    everturn.open(f"{server.url}?schema={schema}", timeout=20).close()  # as above

    async def main() -> None:
        with FaultProxy(server.url) as proxy:
            async with await everturn.open_async(f"{proxy.url}?schema={schema}", timeout=0.5) as store:
                proxy.refuse()
                proxy.cut()
                await asyncio.sleep(0.05)  # as above
                changes = [store.add_messages(f"s{number}", turn("1")) for number in range(5)]
                errors = await asyncio.gather(*changes, return_exceptions=True)
                assert {str(error).count("[not_written]") for error in errors} == {1}
                assert len({id(error) for error in errors}) == len(errors)

    asyncio.run(main())
