"""health: true where the store can be read and written, and a report instead of an error where it cannot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn.testing.faults.files import Locks
from everturn.testing.servers import postgres_server, valkey_server
from tests.store.places import Clock, Place


def test_a_store_that_works_is_healthy_and_unchanged(store: Any) -> None:
    store.save_context("a", "x", "y")
    before = store.state("a")
    health = store.health()
    assert health
    assert health.ok, health.problems
    assert health.reachable
    assert 0 <= health.seconds < 60
    assert store.state("a") == before


TELLS = ("sqlite", "postgres")  # backends that can look for leases and effects in all sessions at once


def test_health_has_the_oldest_lease_and_the_effects_in_doubt(store: Any, place: Place) -> None:
    tells = store._operations.source.system in TELLS
    assert store.health().oldest_lease is None
    assert store.health().effects_in_doubt == (0 if tells else None)
    first = store.lease("absent")
    store.save_context("a", "x", "y")
    second = store.lease("a")
    asked = {name: store.get_lease(name).since for name in ("absent", "a")}
    store.begin_effect("a", "in progress", lease=second)
    store.begin_effect("a", "in doubt")
    store.begin_effect("b", "in doubt", lease=store.lease("b"))
    store.begin_effect("b", "finished")
    store.finish_effect("b", "finished")
    store.begin_effect("erased", "gone")
    store.erase("erased")
    elsewhere = place.open(namespace="another")
    elsewhere.begin_effect("a", "elsewhere")
    assert elsewhere.health().effects_in_doubt == (1 if tells else None)
    assert elsewhere.health().oldest_lease is None
    before, oldest, after = time.time(), store.health().oldest_lease, time.time()
    assert store.health().effects_in_doubt == (1 if tells else None)
    if not tells:
        assert oldest is None
        return
    assert before - 0.01 <= asked["absent"] + oldest <= after + 0.01  # moments are kept to the millisecond
    first.release()
    assert store.health().oldest_lease < time.time() - asked["a"] + 0.01
    second.release()
    assert store.health().effects_in_doubt == 2


def test_a_look_that_would_take_long_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.backends.sqlite.connections.STEPS_BETWEEN_LOOKS", 1)
    store = place.open()
    store.begin_effect("a", "in doubt")
    store.lease("b")
    monkeypatch.setattr("everturn.backends.sqlite.health.LOOK", 0.0)
    monkeypatch.setattr("everturn.backends.postgres.open_checks.MOST_ROWS", -2)  # -1: of a table that is not known yet
    health = store.health()
    assert health.ok, health.problems
    assert (health.oldest_lease, health.effects_in_doubt) == (None, None)


def test_what_has_expired_is_not_under_way(store: Any, clock: Clock) -> None:
    store.begin_effect("a", "in doubt", lease=store.lease("a", seconds=60))
    store.set_ttl("a", 100)
    clock.advance(61)
    assert (store.health().oldest_lease, store.health().effects_in_doubt) in [(None, 1), (None, None)]
    clock.advance(100)
    assert store.health().effects_in_doubt in (0, None)


def test_a_locked_file_is_not_writable_and_says_why(tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/memory.db", timeout=0.3) as store, Locks([tmp_path / "memory.db"]):
        health = store.health()
    assert (health.reachable, health.writable, bool(health)) == (True, False, False)
    assert "locked" in health.problems[0]
    assert health.disk_free is not None


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_server_that_is_gone_is_told_and_not_raised(kind: str) -> None:
    starting: Any = valkey_server(appendonly=True) if kind == "redis" else postgres_server()
    with starting as server, everturn.open(server.url, timeout=2, warnings=False) as store:
        assert store.health().replicas == 0
        server.kill()
        health = store.health()
        assert (health.reachable, health.writable) == (False, False)
        assert health.problems
        server.restart()
        assert store.health()


def test_a_store_that_waits_for_replicas_is_not_writable_without_them() -> None:
    with (
        valkey_server(appendonly=True) as server,
        everturn.open(server.url, wait_replicas=1, warnings=False) as store,
    ):
        health = store.health()
    assert (health.reachable, health.writable) == (True, False)
    assert "wait_replicas=1" in health.problems[0]
