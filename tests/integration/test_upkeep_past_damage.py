"""Upkeep of a whole store goes on past a session that cannot be read, and tells of it when all others are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import redis

import everturn
from everturn import CorruptEntry
from everturn.testing.servers import postgres_server, valkey_server
from tests.store.speech import say, user, words

Damage = Callable[[], None]
NAMES = ("a", "b", "c", "d")  # b and c are damaged: others stand before and behind them
DAMAGED = ("b", "c")


def in_sqlite(path: Path) -> Damage:
    def damage() -> None:
        beside = apsw.Connection(str(path))
        beside.execute("UPDATE sessions SET kept = 'x' WHERE session_id IN ('b', 'c')")
        beside.close()

    return damage


def in_postgres(url: str) -> Damage:
    def damage() -> None:
        with psycopg.connect(url) as beside:
            beside.execute("UPDATE everturn.sessions SET head = 999 WHERE session_id IN ('b', 'c')")

    return damage


def in_redis(url: str, how: Callable[[Any, str], object]) -> Damage:
    def damage() -> None:
        with redis.Redis.from_url(url) as beside:
            for name in DAMAGED:
                how(beside, f"everturn:{{:{name}}}")
            beside.script_flush()  # as after a restart of the server

    return damage


IN_REDIS: dict[str, Callable[[Any, str], object]] = {
    "redis: its meta is gone": lambda client, key: client.delete(f"{key}:meta"),
    "redis: a fact differs": lambda client, key: client.hset(f"{key}:meta", "version", 9),
}
# Some work goes on with these: a clear does not look at every part. Whatever they are, they are erased.
IN_PARTS_OF_REDIS: dict[str, Callable[[Any, str], object]] = {
    "redis: the changes are gone": lambda client, key: client.delete(f"{key}:changes"),
    "redis: meta of another type": lambda client, key: (client.delete(f"{key}:meta"), client.set(f"{key}:meta", "x")),
    "redis: a log of another type": lambda client, key: (client.delete(f"{key}:log"), client.set(f"{key}:log", "x")),
    "redis: snapshots of another type": lambda client, key: client.set(f"{key}:snapshots", "x"),
}


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with valkey_server(appendonly=True) as server:
        yield server.url


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Four sessions, each with an entry to reclaim; two of them are damaged beyond reading."""
    if request.param == "sqlite":
        path = tmp_path / "memory.db"
        url, damage = f"sqlite:///{path}", in_sqlite(path)
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres")
        damage = in_postgres(url)
    else:
        url = request.getfixturevalue("valkey")
        damage = in_redis(url, {**IN_REDIS, **IN_PARTS_OF_REDIS}[request.param])
    with everturn.open(url) as store:
        for name in NAMES:
            say(store, name, "first", "second")
            store.replace(name, [user("instead")], after=1)
            for _ in range(10):  # after so many, no undo step leads back to what was replaced
                store.clear(name)
                say(store, name, "last")
        damage()
        yield store
        for name in NAMES:
            store.erase(name)


unreadable = pytest.mark.parametrize("store", ["sqlite", "postgres", *IN_REDIS], indirect=True)


@unreadable
def test_compact_goes_on_and_tells_of_the_damage_at_the_end(store: Any) -> None:
    with pytest.raises(CorruptEntry) as caught:
        store.compact()
    assert caught.value.session_id == "b"
    (note,) = caught.value.__notes__
    assert "'b', 'c'" in note
    assert "sessions=2" in note
    assert store.compact("a").entries == store.compact("d").entries == 0


@pytest.mark.parametrize("store", ["redis: the changes are gone"], indirect=True)
def test_damage_that_a_clear_goes_past_is_told_of_too(store: Any) -> None:
    with pytest.raises(CorruptEntry, match="'changes'") as caught:
        store.clear_all()
    assert caught.value.session_id == "b"
    assert words(store, "a") == words(store, "d") == []


@unreadable
def test_clear_all_goes_on_and_tells_of_the_damage_at_the_end(store: Any) -> None:
    with pytest.raises(CorruptEntry) as caught:
        store.clear_all()
    assert caught.value.session_id == "b"
    (note,) = caught.value.__notes__
    assert "'b', 'c'" in note
    assert words(store, "a") == words(store, "d") == []
    for name in DAMAGED:
        with pytest.raises(CorruptEntry):
            store.get_history(name)


@pytest.mark.parametrize("store", ["sqlite", "postgres", *IN_REDIS, *IN_PARTS_OF_REDIS], indirect=True)
def test_a_damaged_session_can_be_erased_and_then_upkeep_is_quiet(store: Any) -> None:
    for name in DAMAGED:
        assert store.erase(name).complete
        assert words(store, name) == []
    assert store.compact().sessions == 2
    assert store.clear_all() == 2
    assert store.verify().ok
