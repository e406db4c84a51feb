"""Forks and erasures of long sessions: in bounded steps that nobody sees, and that a repeated call goes on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStoreBackendError, Summary
from everturn.backends.postgres import backend, fork_session
from tests.integration.writers import turn

pytestmark = pytest.mark.one_schema

STEP = 2
TURNS = 12


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_session, "STEP", STEP)
    monkeypatch.setattr(backend, "STEP", STEP)


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    with everturn.open(url, timeout=20) as store:
        write(store, "a")
        yield store


def write(store: Any, name: str) -> None:
    """A history of several ranges, with summaries and something kept below its floor."""
    store.add_messages(name, [ChatMessage("system", "be kind")])
    for number in range(TURNS):
        store.append(name, [*turn(f"{number}"), Summary(f"s{number}", [1.0], (1, 2))])
    for after in (30, 20, 11):
        store.replace(name, turn(f"instead of what follows {after}"), after=after)
        for number in range(3):
            store.add_messages(name, turn(f"{after}, {number}"))
    store.trim(name, max_messages=11)
    store.save_snapshot(name, "before")


def told(store: Any, name: str) -> Any:
    """All that a fork takes over."""
    state = store.state(name)
    return state.messages, state.tool_calls, state.records, store.search_summaries(name, [1.0], k=100)


def watched(store: Any, act: Callable[[str, int], None]) -> list[str]:
    """Have `act` done after each request, with its name and how many there were; returns the names, as they come."""
    backend = store._operations.backend
    ask, names = backend._ask, []

    async def asked(name: str, *args: Any, **options: Any) -> Any:
        rows = await ask(name, *args, **options)
        if name in ("fork", "erase", "erase_more"):
            names.append(name)
            act(name, len(names))
        return rows

    backend._ask = asked
    return names


def at_step(number: int, act: Callable[[], object]) -> Callable[[str, int], None]:
    def only(_: str, count: int) -> None:
        if count == number:
            act()

    return only


def rows_of(beside: psycopg.Connection[Any], schema: str, table: str = "entries") -> int:
    return int(beside.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone()[0])  # type: ignore[index]


# --- forks -----------------------------------------------------------------------------------------------------------


def test_a_fork_goes_in_steps_that_nobody_sees(url: str, store: Any) -> None:
    with everturn.open(url) as other:

        def look(_: str, count: int) -> None:
            seen.append((count, [session.session_id for session in other.sessions().sessions]))

        seen: list[tuple[int, list[str]]] = []
        steps = watched(store, look)
        receipt = store.fork("a", "b")
    assert len(steps) > 3
    assert [names for _, names in seen] == [["a"]] * (len(steps) - 1) + [["a", "b"]]
    assert (receipt.version, told(store, "b")) == (1, told(store, "a"))
    assert store.verify().ok
    store.add_messages("b", turn("on"))
    assert store.verify().ok


@pytest.mark.parametrize("at", [None, "snapshot", "version"])
def test_forks_that_run_out_of_time_get_done_in_the_end(
    store: Any, at: str | None, schema: str, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state: Any = {"snapshot": store.list_snapshots("a")[0], "version": store.state("a").version}.get(at or "")
    monkeypatch.setattr(fork_session, "SHARE", 1e9)  # no step leaves time for another
    errors = []
    for _ in range(100):
        try:
            store.fork("a", "b", at=state)
            break
        except MemoryStoreBackendError as exc:
            errors.append(exc)
        assert store.state("b").messages == ()
        if at is not None:
            store.add_messages("a", turn("meanwhile"))
    assert 2 < len(errors) < 20
    assert {exc.outcome for exc in errors} == {"not_written"}
    assert "entries are left to copy" in str(errors[0])
    assert told(store, "b")[0] == tuple(store.get_history("a", at=state))
    assert store.verify().ok
    assert rows_of(beside, schema, "forks") == 0


def test_a_fork_shows_the_state_it_began_with(store: Any) -> None:
    expected = told(store, "a")
    watched(store, at_step(2, lambda: (store.add_messages("a", turn("later")), store.clear("a"))))
    store.fork("a", "b")
    assert told(store, "b") == expected
    assert store.verify().ok


def test_a_fork_begins_again_where_its_source_was_reclaimed(store: Any) -> None:
    def drop() -> None:
        store.delete_snapshot("a", store.list_snapshots("a")[0])
        store.clear("a")
        for number in range(11):  # more than undo goes back
            store.add_messages("a", turn(f"new {number}"))
            store.clear("a")
        store.add_messages("a", turn("last"))
        store.compact("a")

    watched(store, at_step(2, drop))
    store.fork("a", "b")
    assert [message.content for message in store.get_history("b")][::2] == ["last"]
    assert told(store, "b") == told(store, "a")
    assert store.verify().ok


@pytest.mark.parametrize("place", [-1, 0])
def test_a_fork_tells_of_an_entry_that_is_lost(
    store: Any, place: int, schema: str, beside: psycopg.Connection[Any]
) -> None:
    seq = store.get_history("a", limit=7)[place].seq
    beside.execute(f"DELETE FROM {schema}.entries WHERE seq = {seq}")
    with pytest.raises(CorruptEntry, match=f"entry {seq}"):
        store.fork("a", "b")
    assert [session.session_id for session in store.sessions().sessions] == ["a"]


def test_of_two_forks_at_once_one_makes_the_session(url: str, store: Any) -> None:
    with everturn.open(url, timeout=20) as other:
        watched(store, at_step(2, lambda: other.fork("a", "b")))
        with pytest.raises(everturn.InvalidInput, match="exists already"):
            store.fork("a", "b")
    assert told(store, "b") == told(store, "a")
    assert store.verify().ok


def test_an_erasure_takes_a_fork_along_that_is_under_way(
    url: str, store: Any, schema: str, beside: psycopg.Connection[Any]
) -> None:
    with everturn.open(url, timeout=20) as other:
        before = rows_of(beside, schema)

        def erase() -> None:
            assert other.erase("b").entries > 0
            assert rows_of(beside, schema) == before

        watched(store, at_step(2, erase))
        store.fork("a", "b")
    assert told(store, "b") == told(store, "a")


# --- erasures --------------------------------------------------------------------------------------------------------


def test_an_erasure_goes_in_steps_and_nobody_sees_any(
    url: str, store: Any, schema: str, beside: psycopg.Connection[Any]
) -> None:
    entries = rows_of(beside, schema)
    with everturn.open(url) as other:
        seen: list[Any] = []
        steps = watched(store, lambda *_: seen.append((other.get_history("a"), other.sessions().sessions)))
        receipt = store.erase("a")
    assert len(steps) > 3
    assert all(not history and not sessions for history, sessions in seen)
    assert (receipt.entries, receipt.snapshots, receipt.complete) == (entries, 1, True)
    for table in ("entries", "changes", "jumps", "snapshots", "undo_steps", "sessions", "names"):
        assert rows_of(beside, schema, table) == 0


def test_an_erasure_that_is_cut_short_is_gone_on_with(store: Any, schema: str, beside: psycopg.Connection[Any]) -> None:
    entries = rows_of(beside, schema)

    def fail() -> None:
        raise MemoryStoreBackendError("cut", outcome="unknown")

    watched(store, at_step(3, fail))
    first = store.erase("a")
    assert not first.complete
    assert 0 < first.entries < entries
    assert store.get_history("a") == []
    store.add_messages("a", turn("anew"))
    assert store.compact().entries == 0  # what is erased is left to whoever erases, and counts it
    second = store.erase("a")
    assert second.complete
    assert rows_of(beside, schema) == 0
    assert rows_of(beside, schema, "sessions") == 0


def test_a_life_that_begins_meanwhile_is_left_alone(store: Any, schema: str, beside: psycopg.Connection[Any]) -> None:
    watched(store, at_step(2, lambda: store.add_messages("a", turn("anew"))))
    assert store.erase("a").complete
    assert [message.content for message in store.get_history("a")][::2] == ["anew"]
    assert rows_of(beside, schema) == 2
    assert store.verify().ok


@pytest.mark.parametrize("damage", ["UPDATE {0}.sessions SET bytes = -1", "DELETE FROM {0}.sessions"])
def test_a_damaged_session_is_erased_in_steps_too(
    store: Any, damage: str, schema: str, beside: psycopg.Connection[Any]
) -> None:
    beside.execute(damage.format(schema))  # type: ignore[arg-type]
    steps = watched(store, lambda *_: None)
    assert store.erase("a").complete
    assert len(steps) > 3
    assert store.get_history("a") == []
    for table in ("entries", "changes", "jumps", "snapshots", "undo_steps", "sessions", "names"):
        assert rows_of(beside, schema, table) == 0


def test_what_nobody_goes_on_erasing_is_reaped(
    store: Any, schema: str, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryStoreBackendError("cut", outcome="unknown")

    watched(store, at_step(2, fail))
    store.erase("a")
    backend = store._operations.backend
    at = beside.execute("SELECT date_part('epoch', clock_timestamp())").fetchone()[0]  # type: ignore[index]
    monkeypatch.setattr(backend, "_clock", lambda: at + 61)
    store.compact()
    assert rows_of(beside, schema) == 0
    assert rows_of(beside, schema, "sessions") == 0
