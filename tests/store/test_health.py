"""health: true where the store can be read and written, and a report instead of an error where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn.testing.faults.files import Locks
from everturn.testing.servers import postgres_server, valkey_server


def test_a_store_that_works_is_healthy_and_unchanged(store: Any) -> None:
    store.save_context("a", "x", "y")
    before = store.state("a")
    health = store.health()
    assert health
    assert health.ok, health.problems
    assert health.reachable
    assert 0 <= health.seconds < 60
    assert store.state("a") == before


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
