"""Any path through puts, forks, edits, writes, deletions and copies ends where a plain model does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everturn import MemoryStore
from everturn.adapters.langgraph import checkpoint_log
from tests.adapters.langgraph.conftest import StoreUnderTest
from tests.adapters.langgraph.walks import THREAD, Walk
from tests.tiers import first


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_a_walk_ends_where_the_model_does(store: MemoryStore, seed: int) -> None:
    Walk(store, seed).go(80)


@pytest.mark.parametrize("seed", first(2, range(8, 12)))
def test_a_walk_over_many_keys(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(checkpoint_log, "FARTHEST", 10)
    Walk(store, seed).go(80)


@pytest.mark.parametrize("seed", first(4, range(12, 20)))
def test_a_walk_of_a_subgraph(store: MemoryStore, seed: int) -> None:
    """Which is deleted now and then, so that it begins again."""
    walk = Walk(store, seed, namespace="sub")
    for _ in range(4):
        walk.go(12)
        store.clear(walk.session_id) if seed % 2 else walk.savers[0].delete_thread(THREAD)
        walk.order.clear()
        walk.writes.clear()


@pytest.mark.parametrize("name", ["valkey", "postgres"])
def test_a_walk_on_a_server(make_backend: Callable[[str], StoreUnderTest], name: str) -> None:
    with make_backend(name).open() as store:
        Walk(store, 100).go(50)
